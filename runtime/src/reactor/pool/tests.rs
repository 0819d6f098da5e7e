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

/// Its bytes end where those of the next buffer begin.
#[test]
fn a_part_without_bytes_belongs_to_its_own_buffer() {
    let pool = Pool::new(3, 16).unwrap();
    assert_eq!(provide(&pool), [0, 1, 2]);
    for advance in [false, true] {
        let mut rest = pool.filled(1, 16).expect("a whole buffer");
        let head = match advance {
            true => None,
            false => Some(rest.split_to(16)),
        };
        rest.advance(rest.len());
        assert_eq!((rest.len(), pool.free()), (0, 2));
        drop(rest.split_to(0));
        drop(head);
        assert!(provide(&pool).is_empty());
        drop(rest);
        assert_eq!(provide(&pool), [1]);
    }
}

#[test]
fn a_pool_is_no_larger_than_a_lease_can_tell() {
    let pool = Pool::new(4, MAX_BUFFER_SIZE).unwrap();
    let ends = |bytes: &mut [u8]| {
        let last = bytes.len() - 1;
        (bytes[0], bytes[last]) = (1, 2);
        Some(bytes.len())
    };
    let leases = [0; 4].map(|_| pool.fill(ends).unwrap());
    for mut lease in leases {
        assert_eq!(lease.len(), MAX_BUFFER_SIZE);
        let head = lease.split_to(MAX_BUFFER_SIZE - 1);
        assert_eq!((head[0], &lease[..]), (1, &[2][..]));
    }
    assert_eq!(pool.free(), 4);
    assert!(Pool::new(1, MAX_BUFFER_SIZE + 1).is_err());
    assert!(Pool::new(5, MAX_BUFFER_SIZE).is_err());
}

#[test]
fn unread_buffers_are_counted_while_they_wait() {
    let pool = Pool::new(2, 16).unwrap();
    let leases = [pool.fill(|_| Some(1)), pool.fill(|_| Some(1))].map(Option::unwrap);
    for lease in &leases {
        lease.set_queued(true);
    }
    Lease::heap(vec![1]).set_queued(true); // a pool of its own
    assert_eq!(pool.queued(), 2, "those of the pool only");
    for lease in &leases {
        lease.set_queued(false);
    }
    assert_eq!(pool.queued(), 0);
}

#[test]
fn a_lease_turns_into_its_bytes_wherever_they_are() {
    let pool = Pool::new(1, 16).unwrap();
    let pooled = || {
        let fill = |buffer: &mut [u8]| {
            buffer[..5].copy_from_slice(b"bytes");
            Some(5)
        };
        pool.fill(fill).unwrap()
    };
    let heap = || Lease::heap(b"bytes".to_vec());
    for lease in [&pooled as &dyn Fn() -> Lease, &heap] {
        assert_eq!(lease().as_ref(), b"bytes");
        assert_eq!(Vec::from(lease()), b"bytes");
        assert_eq!(Bytes::from(lease()), "bytes");
        assert_eq!(
            pool.free(),
            1,
            "what was turned into something else is given back"
        );
    }
}
