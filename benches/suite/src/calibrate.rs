//! How fast the machine is right now.
//!
//! Virtual machines have moments that are much slower than others, with no cause that can be seen from inside. So
//! both cores run a known loop before and after each measurement, and one between odd ends is taken again.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use crate::process::{GENERATOR_CORE, SERVER_CORE, pin};

/// Nanoseconds of one system call, on the server's and on the generator's core.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Speed(pub(crate) [f64; 2]);

impl Speed {
    /// Runs the loop on both cores at once.
    pub(crate) fn measure() -> io::Result<Self> {
        thread::scope(|scope| {
            let server = scope.spawn(|| nanoseconds_per_call(SERVER_CORE));
            let generator = scope.spawn(|| nanoseconds_per_call(GENERATOR_CORE));
            let panicked = |_| io::Error::other("the calibration has panicked");
            Ok(Self([
                server.join().map_err(panicked)??,
                generator.join().map_err(panicked)??,
            ]))
        })
    }
}

/// All speeds so far; tells which are odd.
#[derive(Debug, Default)]
pub(crate) struct Calibration {
    seen: [Vec<f64>; 2],
    /// How many measurements may still be taken again.
    repeats_left: usize,
}

impl Calibration {
    /// Has a first look at the machine.
    pub(crate) fn new(repeats_in_all: usize) -> io::Result<Self> {
        let mut calibration = Self {
            repeats_left: repeats_in_all,
            ..Self::default()
        };
        for _ in 0..FIRST_LOOK {
            calibration.measure()?;
        }
        Ok(calibration)
    }

    pub(crate) fn measure(&mut self) -> io::Result<Speed> {
        let speed = Speed::measure()?;
        for (seen, value) in self.seen.iter_mut().zip(speed.0) {
            let place = seen.partition_point(|&other| other < value);
            seen.insert(place, value);
        }
        Ok(speed)
    }

    /// How much slower than usual the slowest of these is: 0.12 is 12 %.
    pub(crate) fn deviation(&self, speeds: &[Speed]) -> f64 {
        let usual = self.usual().0;
        let slower = speeds
            .iter()
            .flat_map(|speed| speed.0.into_iter().zip(usual))
            .map(|(value, usual)| value / usual - 1.0);
        slower.fold(0.0, f64::max)
    }

    /// Takes one of the repeats that are left.
    pub(crate) fn may_repeat(&mut self) -> bool {
        let left = self.repeats_left.checked_sub(1);
        self.repeats_left = left.unwrap_or_default();
        left.is_some()
    }

    /// The undisturbed speed of each core: the first quartile, which neither luck nor noise moves much.
    pub(crate) fn usual(&self) -> Speed {
        let quartile = |seen: &Vec<f64>| seen.get(seen.len() / 4).copied().unwrap_or(f64::NAN);
        Speed([quartile(&self.seen[0]), quartile(&self.seen[1])])
    }
}

fn nanoseconds_per_call(core: usize) -> io::Result<f64> {
    pin(core)?;
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < DURATION {
        for _ in 0..CALLS_BETWEEN_LOOKS {
            let _ = getppid();
        }
        calls += CALLS_BETWEEN_LOOKS;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(calls))
}

/// Beyond this a measurement is taken again.
pub(crate) const TOLERANCE: f64 = 0.12;

const FIRST_LOOK: usize = 20;
const DURATION: Duration = Duration::from_millis(10);
const CALLS_BETWEEN_LOOKS: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_core_makes_a_measurement_odd() {
        let calm = Calibration {
            seen: [vec![100.0; 8], vec![200.0; 8]],
            repeats_left: 0,
        };
        assert_eq!(calm.deviation(&[Speed([100.0, 200.0])]), 0.0);
        assert_eq!(calm.deviation(&[Speed([90.0, 150.0])]), 0.0);
        let odd = calm.deviation(&[Speed([100.0, 200.0]), Speed([100.0, 250.0])]);
        assert!(odd > TOLERANCE && odd < 0.26, "{odd}");
    }
}
