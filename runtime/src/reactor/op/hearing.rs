//! Whether an armed receive still hears.

/// Whether a multishot that goes on can have missed the connection's end.
///
/// What the kernel finds while it arms an op is one piece of news to it, and it is spent when the socket was emptied.
/// A reset (or a Unix peer's end) that came together with the bytes is part of it: the kernel does not look again, and
/// nothing else will ever happen on the socket. Later news are counted, so a reset is a second one and is looked at
/// (since 7.0 and the stable kernels of that time). A new op looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    /// The socket was not empty yet. So many chunks have come.
    Untried(u8),
    /// It was emptied once: before the op was armed, or by what was found while it was.
    EmptiedOnce { quiet: bool },
    /// It was emptied twice, so at least once by what was found: a kernel tries no further when it has emptied a socket,
    /// and arms the op (`io_recv_finish`, since 6.0).
    EmptiedTwice { quiet: bool },
    /// There was news afterwards, so more will be told.
    Proved,
}

impl Hearing {
    pub(super) fn is_doubted(self) -> bool {
        matches!(self, Self::EmptiedOnce { .. } | Self::EmptiedTwice { .. })
    }

    /// A chunk has come and more may follow: what is known of the op now, and whether it must have missed what came with
    /// the chunk, if anything did.
    ///
    /// One that finds more than it takes in one go has certainly been continued because of a single piece of news.
    /// Where it found less, that takes a rare moment: it is looked at when the socket stays quiet.
    #[inline]
    pub(super) fn after(self, nonempty: bool) -> (Self, bool) {
        let quiet = false;
        match self {
            Self::Untried(chunks) if nonempty => (Self::Untried(chunks.saturating_add(1)), false),
            Self::Untried(chunks) => (Self::EmptiedOnce { quiet }, chunks >= ONE_GO),
            Self::EmptiedOnce { .. } if nonempty => (Self::EmptiedOnce { quiet }, false),
            Self::EmptiedOnce { .. } => (Self::EmptiedTwice { quiet }, false),
            Self::EmptiedTwice { .. } | Self::Proved => (Self::Proved, false),
        }
    }
}

impl Default for Hearing {
    fn default() -> Self {
        Self::Untried(0)
    }
}

/// Chunks that a multishot takes before it lets others go first (the kernel's `MULTISHOT_MAX_RETRY`).
const ONE_GO: u8 = 32;
