//! What a case consists of.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::Fate;

/// One run: a runtime, a connection, and what is done with it.
#[derive(Clone, Debug)]
pub struct Case {
    pub options: Options,
    pub steps: Vec<Step>,
}

/// The bounds of the runtime, down to the smallest.
#[derive(Clone, Debug)]
pub struct Options {
    pub ring_entries: u32,
    pub completion_entries: u32,
    pub buffers: u16,
    pub buffer_size: usize,
    pub recv_high_water: usize,
    pub send_high_water: usize,
    /// SO_SNDBUF and SO_RCVBUF, if they are not the kernel's choice.
    pub socket_buffers: Option<usize>,
}

/// 0 or 1.
pub type Side = usize;

#[derive(Clone, Debug)]
pub enum Step {
    /// One call that reads, given up after some polls.
    Read(Side, ReadCall, Fate),
    /// One call that writes, given up after some polls.
    Write(Side, WriteCall, Fate),
    /// Both on halves that are borrowed for as long.
    Both(Side, (ReadCall, Fate), (WriteCall, Fate)),
    /// A read that is awaited, if something is sure to come.
    Await(Side),
    Split(Side),
    Reunite(Side),
    /// To a stream of `std` and back.
    HandOver(Side),
    ShutDownRead(Side),
    DropReader(Side),
    DropWriter(Side),
    Drop(Side),
    /// Drops one lease that was kept.
    Release,
    /// Sends one lease that was kept, whole.
    SendLease(Side),
    Yield(usize),
}

#[derive(Clone, Debug)]
pub enum ReadCall {
    Read(usize),
    TryRead(usize),
    Vectored(usize, usize),
    Peek(usize),
    Readable,
    /// `fill_buf`, then `consume` of at most this much.
    FillBuf(usize),
    /// The next lease, kept or not.
    Lease(bool),
}

#[derive(Clone, Debug)]
pub enum WriteCall {
    Write(usize),
    TryWrite(usize),
    Vectored(usize, usize),
    /// A buffer of our own, or a shared one.
    Send(usize, bool),
    Writable,
    Flush,
    Shutdown,
}

pub fn cases() -> impl Strategy<Value = Case> {
    (options(), vec(step(), 1..50)).prop_map(|(options, steps)| Case { options, steps })
}

fn options() -> impl Strategy<Value = Options> {
    let sizes = (
        select(vec![1, 2, 8, 256]),
        select(vec![1, 4, 16, 4096]),
        select(vec![1, 2, 4, 256]),
        select(vec![1, 16, 500, 16 << 10]),
        select(vec![1, 100, 64 << 10]),
        select(vec![1, 100, 64 << 10]),
        select(vec![None, None, Some(4 << 10), Some(32 << 10)]),
    );
    sizes.prop_map(
        |(ring, completions, buffers, size, recv, send, socket)| Options {
            ring_entries: ring,
            completion_entries: completions,
            buffers,
            buffer_size: size,
            recv_high_water: recv,
            send_high_water: send,
            socket_buffers: socket,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0..2_usize;
    prop_oneof![
        30 => (side.clone(), read(), fate()).prop_map(|(side, read, fate)| Step::Read(side, read, fate)),
        30 => (side.clone(), write(), fate()).prop_map(|(side, write, fate)| Step::Write(side, write, fate)),
        8 => (side.clone(), (read(), fate()), (write(), fate()))
            .prop_map(|(side, read, write)| Step::Both(side, read, write)),
        20 => side.clone().prop_map(Step::Await),
        6 => side.clone().prop_map(Step::Split),
        6 => side.clone().prop_map(Step::Reunite),
        4 => side.clone().prop_map(Step::HandOver),
        1 => side.clone().prop_map(Step::ShutDownRead),
        1 => side.clone().prop_map(Step::DropReader),
        1 => side.clone().prop_map(Step::DropWriter),
        1 => side.clone().prop_map(Step::Drop),
        4 => Just(Step::Release),
        3 => side.prop_map(Step::SendLease),
        6 => (1..30_usize).prop_map(Step::Yield),
    ]
}

fn read() -> impl Strategy<Value = ReadCall> {
    prop_oneof![
        4 => len().prop_map(ReadCall::Read),
        2 => len().prop_map(ReadCall::TryRead),
        1 => (len(), len()).prop_map(|(first, second)| ReadCall::Vectored(first, second)),
        2 => len().prop_map(ReadCall::Peek),
        1 => Just(ReadCall::Readable),
        3 => len().prop_map(ReadCall::FillBuf),
        3 => any::<bool>().prop_map(ReadCall::Lease),
    ]
}

fn write() -> impl Strategy<Value = WriteCall> {
    prop_oneof![
        8 => len().prop_map(WriteCall::Write),
        4 => len().prop_map(WriteCall::TryWrite),
        2 => (len(), len()).prop_map(|(first, second)| WriteCall::Vectored(first, second)),
        4 => (len(), any::<bool>()).prop_map(|(len, shared)| WriteCall::Send(len, shared)),
        2 => Just(WriteCall::Writable),
        3 => Just(WriteCall::Flush),
        1 => Just(WriteCall::Shutdown),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    let polls =
        prop_oneof![1 => Just(0_usize), 4 => Just(1_usize), 3 => 2..10_usize, 1 => 10..100_usize];
    (polls, proptest::bool::weighted(0.1)).prop_map(|(polls, forget)| Fate { polls, forget })
}

/// Mostly small, sometimes none, rarely more than all buffers hold.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0_usize),
        6 => 1..100_usize,
        6 => 100..5_000_usize,
        1 => 5_000..200_000_usize,
    ]
}
