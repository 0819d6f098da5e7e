//! io_uring refused, in whole or in part, by somebody in between or by the operator: programs work the same, and are
//! told why they are slower.
//!
//! A refusal stays with its process, and so does what the runtime finds out about the kernel. So each case is a child.

mod backends;
mod calls;
mod case;
mod filter;
mod program;
mod registrations;
mod switches;
