//! Runs a case.

use futures::future::join;
use futures::{AsyncReadExt, AsyncWriteExt};
use net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use net::{TcpListener, TcpSocket, TcpStream};
use runtime::Builder;
use socket2::SockRef;
use std::net::Shutdown;
use support::{Fate, settled};

use crate::ends::{self, Kept};
use crate::model::{Broken, Direction, End, Reader};
use crate::steps::{Case, Options, Side, Step};

pub fn run(case: Case) {
    let Options {
        ring_entries,
        completion_entries,
        buffers,
        buffer_size,
        recv_high_water,
        send_high_water,
        socket_buffers,
    } = case.options;
    let runtime = Builder::new()
        .ring_entries(ring_entries)
        .completion_entries(completion_entries)
        .buffers(buffers)
        .buffer_size(buffer_size)
        .recv_high_water(recv_high_water)
        .send_high_water(send_high_water)
        .build()
        .unwrap();
    runtime.block_on(async {
        let at_rest = in_use();
        let mut connection = Connection::open(socket_buffers).await;
        for step in case.steps {
            connection.step(step).await;
        }
        connection.finish().await;
        settled("tasks, ops and buffers in use", at_rest, in_use).await;
    });
}

/// Tasks, ops in flight, buffers that are neither vacant nor the kernel's.
fn in_use() -> (usize, usize, usize) {
    let metrics = runtime::metrics();
    let buffers = metrics.buffers - metrics.buffers_free;
    (metrics.tasks, metrics.ops, buffers)
}

/// One side's end, in the form that it has at the moment.
enum Form {
    Whole(TcpStream),
    Halves(Option<OwnedReadHalf>, Option<OwnedWriteHalf>),
}

/// Does something with the reading end of a side, if there is one, or the writing end.
macro_rules! with_reader {
    ($form:expr, $end:ident => $then:expr) => {
        match $form {
            Form::Whole($end) => $then,
            Form::Halves(Some($end), _) => $then,
            Form::Halves(None, _) => {}
        }
    };
}
macro_rules! with_writer {
    ($form:expr, $end:ident => $then:expr) => {
        match $form {
            Form::Whole($end) => $then,
            Form::Halves(_, Some($end)) => $then,
            Form::Halves(_, None) => {}
        }
    };
}

struct Connection {
    sides: [Form; 2],
    /// What the side of that number writes.
    directions: [Direction; 2],
    broken: Broken,
    kept: Kept,
}

impl Connection {
    async fn open(socket_buffers: Option<usize>) -> Self {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = socket_buffers {
            // Before they are connected: a receive buffer that is made smaller afterwards breaks its promise of room,
            // and then each side's TCP may wait for the other's for very long.
            for socket in [SockRef::from(&listener), SockRef::from(&socket)] {
                socket.set_send_buffer_size(bytes).unwrap();
                socket.set_recv_buffer_size(bytes).unwrap();
            }
        }
        let connecting = socket.connect(listener.local_addr().unwrap());
        let (near, far) = join(connecting, listener.accept()).await;
        let (near, far) = (near.unwrap(), far.unwrap().0);
        Self {
            sides: [near, far].map(Form::Whole),
            directions: [0, 1].map(Direction::new),
            broken: Broken::default(),
            kept: Kept::new(),
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Read(side, call, fate) => {
                let model = &mut self.directions[1 - side];
                let (broken, kept) = (&self.broken, &mut self.kept);
                with_reader!(&mut self.sides[side], end => {
                    ends::read(end, &call, fate, model, broken, kept).await;
                });
            }
            Step::Write(side, call, fate) => {
                let model = &mut self.directions[side];
                with_writer!(&mut self.sides[side], end => {
                    ends::write(end, &call, fate, model, &self.broken).await;
                });
            }
            Step::Both(side, read, write) => {
                if self.is_closed(1 - side) {
                    // The read may be told of what the write is the reason for.
                    self.broken.set();
                }
                if let Form::Whole(stream) = &mut self.sides[side] {
                    let (mut reader, mut writer) = TcpStream::split(stream);
                    let [first, second] = &mut self.directions;
                    let (sent, received) = match side {
                        0 => (first, second),
                        _ => (second, first),
                    };
                    let (broken, kept) = (&self.broken, &mut self.kept);
                    join(
                        ends::read(&mut reader, &read.0, read.1, received, broken, kept),
                        ends::write(&mut writer, &write.0, write.1, sent, broken),
                    )
                    .await;
                }
            }
            Step::Await(side) => self.await_something(side).await,
            Step::Split(side) => self.convert(side, |form| match form {
                Form::Whole(stream) => {
                    let (reader, writer) = stream.into_split();
                    Form::Halves(Some(reader), Some(writer))
                }
                halves => halves,
            }),
            Step::Reunite(side) => self.convert(side, |form| match form {
                Form::Halves(Some(reader), Some(writer)) => {
                    Form::Whole(reader.reunite(writer).unwrap())
                }
                other => other,
            }),
            Step::HandOver(side) => self.hand_over(side).await,
            Step::ShutDownRead(side) => {
                if let Form::Whole(stream) = &self.sides[side] {
                    let shut = stream.shutdown(Shutdown::Read).await;
                    // A connection that was reset, or has ended in both directions, is none any more.
                    let is_over = self.directions.iter().all(|model| model.end != End::Open);
                    let excused = is_over || self.broken.is_set();
                    assert!(shut.is_ok() || excused, "{shut:?}");
                    self.directions[1 - side].cut = true;
                }
            }
            Step::DropReader(side) => self.drop_ends(side, true, false),
            Step::DropWriter(side) => self.drop_ends(side, false, true),
            Step::Drop(side) => self.drop_ends(side, true, true),
            Step::Release => {
                if let Some((lease, shows)) = self.kept.pop() {
                    assert_eq!(*lease, *shows, "a lease that was kept");
                }
            }
            Step::SendLease(side) => {
                let model = &mut self.directions[side];
                with_writer!(&mut self.sides[side], end => {
                    if let Some((lease, shows)) = self.kept.pop() {
                        assert_eq!(*lease, *shows, "a lease that was kept");
                        let fate = Fate { polls: 1, forget: false };
                        ends::send(end, lease.into(), &shows, fate, model, &self.broken).await;
                    }
                });
            }
            Step::Yield(turns) => {
                for _ in 0..turns {
                    runtime::yield_now().await;
                }
            }
        }
        self.note_breaks();
    }

    /// TCP resets a connection if one side is closed and has not read everything, or is sent more. And a side that
    /// has shut down both directions treats more data as sent to a closed one.
    fn note_breaks(&self) {
        for side in 0..2 {
            if self.is_closed(side) && !self.directions[1 - side].queue.is_empty() {
                self.broken.set();
            }
        }
    }

    /// Whether TCP has nobody any more to give bytes to.
    fn is_closed(&self, side: Side) -> bool {
        let (sent, received) = (&self.directions[side], &self.directions[1 - side]);
        self.is_gone(side) || received.cut && sent.end != End::Open
    }

    fn is_gone(&self, side: Side) -> bool {
        matches!(self.sides[side], Form::Halves(None, None))
    }

    /// One read, to its end. Bytes were taken from the writer, or the end was sent, so it has one.
    async fn await_something(&mut self, side: Side) {
        let model = &mut self.directions[1 - side];
        if !model.is_certain() || self.broken.is_set() {
            return;
        }
        let mut buf = [0; 1000];
        with_reader!(&mut self.sides[side], end => match end.read(&mut buf).await {
            Ok(0) => model.ended(&self.broken),
            Ok(len) => model.took(&buf[..len]),
            Err(error) => model.read_failed(&error, &self.broken),
        });
    }

    fn convert(&mut self, side: Side, convert: impl FnOnce(Form) -> Form) {
        let form = std::mem::replace(&mut self.sides[side], Form::Halves(None, None));
        self.sides[side] = convert(form);
    }

    /// Only if the outbox is sure to empty, and nothing but bytes is to be kept: the ends of directions are not.
    async fn hand_over(&mut self, side: Side) {
        let (sent, received) = (&self.directions[side], &self.directions[1 - side]);
        let is_simple = sent.queue.is_empty() && sent.end == End::Open && !received.cut;
        if !is_simple || self.broken.is_set() || self.is_gone(1 - side) {
            return;
        }
        let form = std::mem::replace(&mut self.sides[side], Form::Halves(None, None));
        self.sides[side] = match form {
            Form::Whole(stream) => {
                let (stream, unread) = stream.into_std().await.unwrap();
                self.directions[1 - side].took(&unread);
                Form::Whole(TcpStream::from_std(stream).unwrap())
            }
            halves => halves,
        };
    }

    fn drop_ends(&mut self, side: Side, reader: bool, writer: bool) {
        let had_writer = matches!(self.sides[side], Form::Whole(_) | Form::Halves(_, Some(_)));
        match &mut self.sides[side] {
            Form::Whole(_) if reader && writer => self.sides[side] = Form::Halves(None, None),
            // A whole stream has no end that could be dropped alone.
            Form::Whole(_) => return,
            Form::Halves(read_half, write_half) => {
                if reader {
                    *read_half = None;
                }
                if writer {
                    *write_half = None;
                }
            }
        }
        if reader {
            self.directions[1 - side].reader = Reader::Gone;
        }
        if writer && had_writer {
            // What was written goes out first.
            self.directions[side].end = End::Sent;
        }
    }

    /// Every direction that still has both ends is ended and read to the end. Then everything is dropped.
    async fn finish(mut self) {
        // Each side ends its own direction now. With that one which has shut its reading down is closed, as far as TCP
        // is concerned, and bytes that are still on their way to it are answered by a reset.
        if (self.directions.iter()).any(|model| model.cut && !model.queue.is_empty()) {
            self.broken.set();
        }
        let [first, second] = &mut self.sides;
        let [forth, back] = &mut self.directions;
        let broken = &self.broken;
        let (mut first, mut second) = (Ends::of(first), Ends::of(second));
        join(
            end_direction(&mut first.writer, &mut second.reader, forth, broken),
            end_direction(&mut second.writer, &mut first.reader, back, broken),
        )
        .await;
        for (lease, shows) in &self.kept {
            assert_eq!(**lease, **shows, "a lease that was kept");
        }
    }
}

/// The ends that a side has left, apart.
struct Ends {
    reader: Option<OwnedReadHalf>,
    writer: Option<OwnedWriteHalf>,
}

impl Ends {
    fn of(form: &mut Form) -> Self {
        let (reader, writer) = match std::mem::replace(form, Form::Halves(None, None)) {
            Form::Whole(stream) => {
                let (reader, writer) = stream.into_split();
                (Some(reader), Some(writer))
            }
            Form::Halves(reader, writer) => (reader, writer),
        };
        Self { reader, writer }
    }
}

async fn end_direction(
    writer: &mut Option<OwnedWriteHalf>,
    reader: &mut Option<OwnedReadHalf>,
    model: &mut Direction,
    broken: &Broken,
) {
    let (Some(reader), Reader::Reading, false) = (reader, model.reader, model.cut) else {
        // Nobody reads, so what is written might wait for ever. It goes when both sides are gone.
        return;
    };
    let close = async {
        let Some(writer) = writer else { return Ok(()) };
        writer.close().await
    };
    // By hand: `read_to_end` clears its whole buffer before every read, which is slow where the reads are small.
    let mut received = Vec::new();
    let read = async {
        let mut buf = [0; 1000];
        loop {
            match reader.read(&mut buf).await {
                Ok(0) => return Ok(()),
                Ok(len) => received.extend_from_slice(&buf[..len]),
                Err(error) => return Err(error),
            }
        }
    };
    let (closed, read) = join(close, read).await;
    match closed {
        Ok(()) => model.end = End::Sent,
        Err(error) => model.write_failed(&error, broken),
    }
    model.took(&received);
    match read {
        Ok(()) => model.ended(broken),
        Err(error) => model.read_failed(&error, broken),
    }
    if !broken.is_set() {
        assert_eq!(model.queue.len(), 0, "bytes that never came");
    }
    // The end stays the end.
    let again = reader.read(&mut [0]).await;
    assert_eq!(again.unwrap(), 0, "after the end");
}
