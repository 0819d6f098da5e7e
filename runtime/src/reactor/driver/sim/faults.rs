//! [`Faults`].

use std::time::Duration;

/// What goes wrong in a simulation, and how often.
///
/// Rates are probabilities from 0 to 1, each for one occasion. They are bounds: every seed draws a mix of its own below
/// them, so that one seed has short reads and no late completions, and the next the reverse.
///
/// Most faults are the kernel's, and must not be seen by the program: [`Faults::hidden`], the default, has all of
/// those. Three are visible, as a network is: [`resets`](Self::resets), [`refusals`](Self::refusals) and
/// [`outages`](Self::outages).
///
/// # Examples
///
/// ```
/// use runtime::sim::Faults;
///
/// let mut faults = Faults::hidden();
/// faults.resets = 0.001;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Faults {
    /// The longest time that bytes, handshakes and ends of connections take.
    pub latency: Duration,
    /// A receive brings less than there is.
    pub short_receives: f64,
    /// A send takes less than there is room for, or nothing.
    pub short_sends: f64,
    /// An operation that could go on waits for a later turn. So completions are late, and overtake each other.
    pub late: f64,
    /// A receive finds no buffer, although there is one.
    pub missing_buffers: f64,
    /// A multishot operation ends after a completion.
    pub multishot_ends: f64,
    /// The kernel takes no submission (EAGAIN, EBUSY or ENOMEM).
    pub refused_submissions: f64,
    /// The kernel takes a part of the submissions.
    pub partial_submissions: f64,
    /// A call returns without having waited.
    pub interruptions: f64,
    /// A cancel does not find its operation, which goes on (ENOENT), or not in time (EALREADY).
    pub missed_cancels: f64,
    /// A multishot receive that has found nothing when it was armed is told of nothing but what comes next: a reset
    /// that is there by then is never heard.
    pub spent_news: f64,
    /// A readiness is told that is not there.
    pub false_readiness: f64,
    /// Visible: a connection is reset, for each time that it is sent to.
    pub resets: f64,
    /// Visible: a connection is refused.
    pub refusals: f64,
    /// Visible: descriptors run out, for each connection that is to be accepted, and for a few more.
    pub outages: f64,
}

impl Faults {
    /// Nothing goes wrong and everything takes no time.
    pub const fn none() -> Self {
        Self {
            latency: Duration::ZERO,
            short_receives: 0.0,
            short_sends: 0.0,
            late: 0.0,
            missing_buffers: 0.0,
            multishot_ends: 0.0,
            refused_submissions: 0.0,
            partial_submissions: 0.0,
            interruptions: 0.0,
            missed_cancels: 0.0,
            spent_news: 0.0,
            false_readiness: 0.0,
            resets: 0.0,
            refusals: 0.0,
            outages: 0.0,
        }
    }

    /// Everything that a program must not notice, except by the time that it takes.
    pub const fn hidden() -> Self {
        Self {
            latency: Duration::from_millis(5),
            short_receives: 0.5,
            short_sends: 0.5,
            late: 0.7,
            missing_buffers: 0.2,
            multishot_ends: 0.3,
            refused_submissions: 0.2,
            partial_submissions: 0.3,
            interruptions: 0.3,
            missed_cancels: 0.5,
            spent_news: 0.5,
            false_readiness: 0.2,
            ..Self::none()
        }
    }

    /// [`hidden`](Self::hidden), and what a program can see of a bad network and a small machine.
    pub const fn all() -> Self {
        Self {
            resets: 0.01,
            refusals: 0.05,
            outages: 0.05,
            ..Self::hidden()
        }
    }

    /// A mix below these bounds.
    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> Self {
        let mut rate = |bound: f64| bound * SHARES[rng.usize(..SHARES.len())];
        Self {
            latency: self.latency.mul_f64(rate(1.0)),
            short_receives: rate(self.short_receives),
            short_sends: rate(self.short_sends),
            late: rate(self.late),
            missing_buffers: rate(self.missing_buffers),
            multishot_ends: rate(self.multishot_ends),
            refused_submissions: rate(self.refused_submissions),
            partial_submissions: rate(self.partial_submissions),
            interruptions: rate(self.interruptions),
            missed_cancels: rate(self.missed_cancels),
            spent_news: rate(self.spent_news),
            false_readiness: rate(self.false_readiness),
            resets: rate(self.resets),
            refusals: rate(self.refusals),
            outages: rate(self.outages),
        }
    }
}

impl Default for Faults {
    /// [`Faults::hidden`].
    fn default() -> Self {
        Self::hidden()
    }
}

/// Often a fault is left out, so that it does not hide what others do.
const SHARES: [f64; 4] = [0.0, 0.0, 0.3, 1.0];
