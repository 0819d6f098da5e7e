//! Seeded randomness.

use std::time::{SystemTime, UNIX_EPOCH};

/// xorshift64*. `RINGSHOT_TEST_SEED` fixes the seed; otherwise it is new in each run and shown when the test fails.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    state: u64,
}

impl Rng {
    pub fn from_env() -> Self {
        let seed = match std::env::var("RINGSHOT_TEST_SEED") {
            Ok(text) => text.parse().expect("RINGSHOT_TEST_SEED is a number"),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64,
        };
        // The harness shows this when the test fails.
        println!("RINGSHOT_TEST_SEED={seed}");
        Self::new(seed)
    }

    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            // A state of zero would stay zero; near seeds must not give near streams.
            state: crate::pattern::mix(seed) | 1,
        }
    }

    /// For the name of a watchdog, which ends the process before the harness can show anything.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// An independent stream for another thread or task.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }

    /// A number in `1..=bound`, small ones as likely as large ones: first its length in bits is drawn.
    pub fn size(&mut self, bound: usize) -> usize {
        let bits = self.below(bound.ilog2() as usize + 1) + 1;
        1 + self.below(bound.min(1 << bits))
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
