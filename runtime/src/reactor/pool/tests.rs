use super::*;

/// What the kernel would be shown, in order.
fn provide(pool: &Pool) -> Vec<u16> {
    let mut ids = Vec::new();
    pool.provide(|id, _, len| {
        assert_eq!(len, pool.buffer_size);
        ids.push(id);
    });
    ids
}

#[test]
fn it_doubles_until_it_is_at_its_largest() {
    let pool = Pool::new(200, 16).unwrap();
    assert_eq!(pool.born(), 64);
    assert!(pool.grow());
    assert_eq!(pool.born(), 128);
    assert!(pool.grow());
    assert_eq!(pool.born(), 200);
    assert!(!pool.grow());
    assert_eq!((pool.born(), pool.free()), (200, 200));
    let mut ids = provide(&pool);
    ids.sort_unstable();
    assert_eq!(ids, Vec::from_iter(0..200), "each buffer once");
    assert_eq!(pool.free(), 200, "a provided buffer is free");
}

#[test]
fn it_is_short_when_less_than_a_quarter_is_free() {
    let pool = Pool::new(8, 16).unwrap();
    let mut leases = Vec::new();
    for free in (0..8).rev() {
        leases.push(pool.fill(|_| Some(1)).unwrap());
        assert_eq!((pool.free(), pool.is_short()), (free, free < 2));
    }
    assert!(pool.fill(|_| unreachable!("nothing is vacant")).is_none());
}

#[test]
fn what_the_kernel_cannot_have_filled_is_no_lease() {
    let pool = Pool::new(2, 16).unwrap();
    assert!(pool.filled(0, 1).is_none(), "not provided");
    assert_eq!(provide(&pool), [0, 1]);
    assert!(pool.filled(2, 1).is_none(), "no such buffer");
    assert!(pool.filled(0, 17).is_none(), "more than it holds");
    assert_eq!(pool.free(), 2);
    let lease = pool.filled(0, 16).expect("a whole buffer");
    assert_eq!((lease.len(), pool.free()), (16, 1));
    assert!(pool.filled(0, 1).is_none(), "somebody reads it");
    assert_eq!(pool.free(), 1);
    drop(lease);
    assert_eq!(provide(&pool), [0]);
}

#[test]
fn a_fill_that_brings_nothing_gives_its_buffer_back() {
    let pool = Pool::new(1, 16).unwrap();
    assert!(pool.fill(|_| None).is_none());
    assert_eq!(pool.free(), 1);
    let lease = pool.fill(|bytes| Some(bytes.len() + 1)).unwrap();
    assert_eq!(lease.len(), 16, "never more than there is");
}

#[test]
fn a_buffer_comes_back_once_with_its_last_part() {
    let pool = Pool::new(2, 16).unwrap();
    let fill = |bytes: &mut [u8]| {
        bytes[..6].copy_from_slice(b"abcdef");
        Some(6)
    };
    for heap in [false, true] {
        let mut rest = match heap {
            true => Lease::heap(b"abcdef".to_vec()),
            false => pool.fill(fill).unwrap(),
        };
        assert_eq!(rest.is_pooled(), !heap);
        let held = 2 - usize::from(!heap);
        let all = rest.split_to(6);
        assert_eq!((&all[..], rest.len()), (&b"abcdef"[..], 0));
        rest = all;
        let mut head = rest.split_to(4);
        head.advance(1);
        assert_eq!((&head[..], &rest[..]), (&b"bcd"[..], &b"ef"[..]));
        rest.advance(2);
        assert_eq!(rest.len(), 0);
        drop(rest);
        assert_eq!(pool.free(), held);
        assert_eq!(Vec::from(head), b"bcd");
        assert_eq!(pool.free(), 2);
    }
}

#[test]
fn unread_buffers_are_counted_while_they_wait() {
    let pool = Pool::new(2, 16).unwrap();
    let leases = [pool.fill(|_| Some(1)), pool.fill(|_| Some(1))].map(Option::unwrap);
    for lease in &leases {
        lease.set_queued(true);
    }
    Lease::heap(vec![1]).set_queued(true);
    assert_eq!(pool.queued(), 2, "those of the pool only");
    for lease in &leases {
        lease.set_queued(false);
    }
    assert_eq!(pool.queued(), 0);
}
