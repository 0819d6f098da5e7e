//! Seccomp filters, as a container's profile would install them: a call fails and nothing else happens.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Bits of `io_uring_register`'s second argument that name the operation; the topmost one says how the ring is named.
const REGISTER_OPCODE: u64 = (1 << 31) - 1;

/// From now on `call` fails with `errno`, in every thread of this process. With an `opcode` only that one of
/// `io_uring_register`'s operations does.
pub fn deny(call: &str, errno: i32, opcode: Option<u32>) {
    let rules = opcode.map(naming).into_iter().collect();
    let filter = SeccompFilter::new(
        BTreeMap::from([(number_of(call), rules)]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    // Sets "no new privileges" as well, without which only root may install a filter.
    seccompiler::apply_filter_all_threads(&program).unwrap();
}

fn naming(opcode: u32) -> SeccompRule {
    let condition = SeccompCondition::new(
        1,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(REGISTER_OPCODE),
        opcode.into(),
    );
    SeccompRule::new(vec![condition.unwrap()]).unwrap()
}

fn number_of(call: &str) -> i64 {
    match call {
        "io_uring_setup" => libc::SYS_io_uring_setup,
        "io_uring_enter" => libc::SYS_io_uring_enter,
        "io_uring_register" => libc::SYS_io_uring_register,
        _ => panic!("{call} is none of the ring's calls"),
    }
}
