//! A ring by itself. Where the kernel gives none there is nothing to test.

use std::cell::Cell;
use std::time::Instant;

use io_uring::{cqueue, opcode, types};

use super::*;

const SIZES: Sizes = Sizes {
    submissions: 8,
    completions: 16,
};

/// Longer than any wait here has to be.
const FOR_LONG: Duration = Duration::from_secs(600);

/// A thread has 16 places for descriptors, and a ring in one of them lives on.
#[test]
fn a_ring_that_is_gone_leaves_its_place_to_the_next() {
    let new = || Uring::new(SIZES, &Disabled::default());
    // Where there is no ring, or no place for its descriptor, none can be used up.
    if new().is_ok_and(|ring| ring.registered().is_ok()) {
        for number in 0..40 {
            let ring = new().unwrap();
            assert!(ring.registered().is_ok(), "ring {number}");
        }
    }
}

#[test]
fn a_turn_with_nothing_to_do_costs_no_enter() {
    for mut ring in rings() {
        assert!(turn(&mut ring, Park::Poll).is_empty());
        assert_eq!(ring.counters().enters, 0);
    }
}

/// On kernels before 5.11 as well, whose enter takes no limit: nothing else sleeps there and wakes up in time.
#[test]
fn a_sleep_is_one_enter_and_lasts_as_long_as_it_may() {
    const LIMIT: Duration = Duration::from_millis(20);
    for mut ring in rings() {
        let start = Instant::now();
        let arrived = turn(&mut ring, Park::Sleep(Some(LIMIT)));
        assert!(start.elapsed() >= LIMIT, "{:?}", start.elapsed());
        assert!(arrived.is_empty());
        assert_eq!(ring.counters().enters, 1);
    }
}

#[test]
fn what_is_queued_goes_out_before_a_sleep_and_its_completion_ends_it() {
    for limit in [None, Some(FOR_LONG)] {
        for mut ring in rings() {
            push(&mut ring, 3);
            let arrived = turn(&mut ring, Park::Sleep(limit));
            assert_eq!(arrived, [3]);
            assert_eq!((ring.pushed(), ring.consumed()), (1, 1));
        }
    }
}

#[test]
fn nobody_sleeps_over_a_completion_that_has_come_already() {
    for limit in [None, Some(FOR_LONG)] {
        for mut ring in rings() {
            push(&mut ring, 5);
            ring.submit().unwrap();
            assert_eq!((ring.pushed(), ring.consumed()), (1, 1));
            assert!(ring.has_news());
            assert_eq!(turn(&mut ring, Park::Sleep(limit)), [5]);
            assert!(!ring.has_news());
        }
    }
}

#[test]
fn a_full_queue_takes_no_more_before_it_is_submitted() {
    for mut ring in rings() {
        for number in 0..u64::from(SIZES.submissions) {
            push(&mut ring, number);
        }
        assert!(ring.push_entry(&nop(8)).is_none());
        assert!(ring.push(Request::Entry(nop(8))).is_err());
        assert_eq!((ring.pushed(), ring.consumed()), (8, 0));
        ring.submit().unwrap();
        assert_eq!(ring.consumed(), 8);
        push(&mut ring, 8);
        assert_eq!(turn(&mut ring, Park::Sleep(None)), Vec::from_iter(0..9));
    }
}

/// The kernel keeps what finds no room, and says so.
#[test]
fn completions_that_find_no_room_are_counted_and_come_later() {
    for mut ring in rings() {
        assert!(!ring.is_overflowing());
        // More would be refused by some kernels, as long as these wait.
        let many = 3 * u64::from(SIZES.submissions);
        for number in 0..many {
            if ring.push_entry(&nop(number)).is_none() {
                ring.submit().unwrap();
                push(&mut ring, number);
            }
        }
        ring.submit().unwrap();
        assert!(ring.is_overflowing() && ring.has_more());
        let mut arrived = Vec::new();
        while (arrived.len() as u64) < many {
            arrived.extend(turn(&mut ring, Park::Sleep(None)));
        }
        assert_eq!(arrived, Vec::from_iter(0..many));
        let overflows = ring.counters().overflows;
        assert!((1..=many).contains(&overflows), "{overflows} overflows");
        assert!(!ring.is_overflowing() && !ring.has_news());
    }
}

/// More than fit on a page, and round the ring a few times.
#[test]
fn each_of_many_buffers_is_filled_in_its_turn() {
    const BUFFERS: u16 = 1024;
    let Ok(mut ring) = Uring::new(SIZES, &Disabled::default()) else {
        return;
    };
    // Kernels before 5.19 know nothing of buffer rings, not even that this one does not exist.
    let unknown = ring.ring().submitter().unregister_buf_ring(GROUP);
    if unknown.unwrap_err().raw_os_error() != Some(libc::ENOENT) {
        return;
    }
    ring.register_buffers(BUFFERS).unwrap();
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    // Written by the kernel, between the looks at it.
    let memory = vec![Cell::new(0_u8); usize::from(BUFFERS)];
    for _ in 0..3 {
        for id in 0..BUFFERS {
            let buffer = &memory[usize::from(id)];
            buffer.set(1);
            ring.provide(id, NonNull::from(buffer).cast(), 1);
        }
        ring.publish();
        for id in 0..BUFFERS {
            let read = opcode::Read::new(types::Fd(zeros.as_raw_fd()), ptr::null_mut(), 1)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT);
            assert!(ring.push_entry(&read).is_some());
            let mut arrived = Vec::new();
            ring.turn(Park::Sleep(None), &mut arrived).unwrap();
            assert_eq!(arrived.len(), 1);
            assert_eq!(arrived[0].result, 1, "buffer {id}");
            assert_eq!(cqueue::buffer_select(arrived[0].flags), Some(id));
            assert_eq!(memory[usize::from(id)].get(), 0);
        }
    }
    drop(ring);
}

/// One as the kernel has it, and one as if its enter took no limit.
fn rings() -> impl Iterator<Item = Uring> {
    [true, false].into_iter().filter_map(|with_limit| {
        let mut ring = Uring::new(SIZES, &Disabled::default()).ok()?;
        ring.ext_arg &= with_limit;
        Some(ring)
    })
}

fn push(ring: &mut Uring, user_data: u64) {
    let pushed = ring.pushed();
    assert_eq!(ring.push_entry(&nop(user_data)), Some(pushed + 1));
}

fn nop(user_data: u64) -> squeue::Entry {
    opcode::Nop::new().build().user_data(user_data)
}

/// The `user_data` of what has arrived.
fn turn(ring: &mut Uring, park: Park) -> Vec<u64> {
    let mut arrived = Vec::new();
    ring.turn(park, &mut arrived).unwrap();
    arrived.iter().map(|cqe| cqe.user_data).collect()
}
