//! What a server does on one worker: take connections, run their handlers, and see them to their end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{self, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use runtime::JoinHandle;
use runtime::time::timeout;

use super::shared::{End, Shared, Stop, Ticket};
use crate::{TcpListener, TcpStream};

/// Serves the connections of `listener`, or those that the acceptor sends.
pub(super) async fn serve<H, F>(
    shared: Arc<Shared>,
    index: usize,
    listener: Option<net::TcpListener>,
    handler: H,
) -> io::Result<()>
where
    H: Fn(TcpStream, SocketAddr) -> F + 'static,
    F: Future + 'static,
{
    let room = Room::new(handler);
    let _abort = AbortOnDrop(&room);
    if let Some(listener) = listener {
        let mut source = Source::new(&shared, Some(index), listener)?;
        while let Some((stream, peer, ticket)) = source.next().await {
            room.start(stream, peer, ticket.assign(index));
        }
        source
            .drain(|stream, peer| room.admit(stream, peer, shared.enter().assign(index)))
            .await;
    } else {
        while let Some((stream, peer, ticket)) = next_mail(&shared, index).await {
            room.admit(stream, peer, ticket);
        }
    }
    room.end(&shared, index).await;
    Ok(())
}

/// Accepts, and hands each connection to the worker that has the fewest.
pub(super) async fn accept_for_all(
    shared: Arc<Shared>,
    listener: net::TcpListener,
) -> io::Result<()> {
    // Whatever happens here, the others need not wait for more.
    let _end = AcceptorEnd(Arc::clone(&shared));
    let turn = Cell::new(0);
    let hand_out = |stream: net::TcpStream, peer, ticket: Ticket| {
        let index = shared.least_loaded(turn.get());
        turn.set(index + 1);
        shared.send(index, (stream, peer, ticket.assign(index)));
    };
    let mut source = Source::new(&shared, None, listener)?;
    while let Some((stream, peer, ticket)) = source.next().await {
        match stream.into_std().await {
            Ok((stream, _nothing_read)) => hand_out(stream, peer, ticket),
            Err(_) => shared.note_accept_error(),
        }
    }
    source
        .drain(|stream, peer| hand_out(stream, peer, shared.enter()))
        .await;
    Ok(())
}

struct AcceptorEnd(Arc<Shared>);

impl Drop for AcceptorEnd {
    fn drop(&mut self) {
        self.0.acceptor_has_ended();
    }
}

/// A listener whose connections are handed out as there is room for them, until the server stops.
struct Source<'a> {
    shared: &'a Arc<Shared>,
    /// `None` for the acceptor.
    index: Option<usize>,
    listener: TcpListener,
    /// The next connection, while there is no room for it. An idle listener holds no room.
    held: Option<(TcpStream, SocketAddr)>,
}

impl<'a> Source<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        index: Option<usize>,
        listener: net::TcpListener,
    ) -> io::Result<Self> {
        Ok(Self {
            shared,
            index,
            listener: TcpListener::from_std(listener)?,
            held: None,
        })
    }

    async fn next(&mut self) -> Option<(TcpStream, SocketAddr, Ticket)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(TcpStream, SocketAddr, Ticket)>> {
        self.shared.register(self.index, cx.waker());
        if self.shared.is_stopping() {
            return Poll::Ready(None);
        }
        while self.held.is_none() {
            match ready!(self.listener.poll_accept(cx)) {
                Ok(connection) => self.held = Some(connection),
                // The listener waits for shortages to pass by itself.
                Err(_) => self.shared.note_accept_error(),
            }
        }
        let Some(ticket) = self.shared.try_enter() else {
            return Poll::Pending;
        };
        let next = self.held.take();
        Poll::Ready(next.map(|(stream, peer)| (stream, peer, ticket)))
    }

    /// Stops accepting. What was accepted, and what the kernel has queued, goes to `serve`.
    async fn drain(self, mut serve: impl FnMut(net::TcpStream, SocketAddr)) {
        if let Some((stream, peer)) = self.held {
            match stream.into_std().await {
                Ok((stream, _nothing_read)) => serve(stream, peer),
                Err(_) => self.shared.note_accept_error(),
            }
        }
        let Ok((listener, accepted)) = self.listener.into_std().await else {
            return self.shared.note_accept_error();
        };
        for stream in accepted {
            // One that has no peer any more was reset.
            if let Ok(peer) = stream.peer_addr() {
                serve(stream, peer);
            }
        }
        if listener.set_nonblocking(true).is_err() {
            return self.shared.note_accept_error();
        }
        loop {
            match listener.accept() {
                Ok((stream, peer)) => serve(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => return self.shared.note_accept_error(),
            }
        }
    }
}

/// Errors after which the next connection may be taken at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

/// The next connection that the acceptor has sent; `None` when no other will come.
async fn next_mail(shared: &Shared, index: usize) -> Option<super::shared::Mail> {
    poll_fn(|cx| {
        shared.register(Some(index), cx.waker());
        // Asked first: what is sent before it ends is there when it has ended.
        let over = shared.acceptor_is_done();
        match shared.receive(index) {
            Some(mail) => Poll::Ready(Some(mail)),
            None if over => Poll::Ready(None),
            None => Poll::Pending,
        }
    })
    .await
}

/// The connections of this worker.
struct Room<H> {
    handler: H,
    tasks: Rc<Tasks>,
}

#[derive(Default)]
struct Tasks {
    running: RefCell<HashMap<u64, JoinHandle<()>>>,
    started: Cell<u64>,
    /// Of whoever waits for the last one to end.
    waker: RefCell<Option<Waker>>,
}

impl<H, F> Room<H>
where
    H: Fn(TcpStream, SocketAddr) -> F,
    F: Future + 'static,
{
    fn new(handler: H) -> Self {
        Self {
            handler,
            tasks: Rc::default(),
        }
    }

    /// Brings a connection to this worker, and starts its handler.
    fn admit(&self, stream: net::TcpStream, peer: SocketAddr, ticket: Ticket) {
        if let Ok(stream) = TcpStream::from_std(stream) {
            self.start(stream, peer, ticket);
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, ticket: Ticket) {
        // A panic is the connection's own, whether it comes now or later.
        let Ok(future) = catch_unwind(AssertUnwindSafe(|| (self.handler)(stream, peer))) else {
            return ticket.note(End::Panicked);
        };
        let id = self.tasks.started.get();
        self.tasks.started.set(id + 1);
        let connection = Connection {
            future,
            leave: Leave {
                tasks: Rc::clone(&self.tasks),
                id,
                ticket,
                end: End::Aborted,
            },
        };
        let task = runtime::spawn(connection);
        // It makes its first step later, so it cannot have left already, unless the runtime is ending.
        if !task.is_finished() {
            self.tasks.running.borrow_mut().insert(id, task);
        }
    }

    /// Waits for the connections, as long as they are given, and drops what is left.
    async fn end(&self, shared: &Shared, index: usize) {
        loop {
            let Some(stop) = shared.last_stop() else {
                // The acceptor has failed, and the server is about to be told.
                self.tasks.quiet(shared, index, None).await;
                if self.tasks.is_empty() {
                    return;
                }
                continue;
            };
            let quiet = self.tasks.quiet(shared, index, Some(stop));
            match timeout(stop.grace, quiet).await {
                Ok(()) if self.tasks.is_empty() => return,
                // Another time was set.
                Ok(()) => {}
                Err(_) => {
                    self.tasks.abort();
                    self.tasks.empty().await;
                    return;
                }
            }
        }
    }
}

impl Tasks {
    fn is_empty(&self) -> bool {
        self.running.borrow().is_empty()
    }

    /// Ready when there are none left, or when another order to stop than this has come.
    async fn quiet(&self, shared: &Shared, index: usize, known: Option<Stop>) {
        poll_fn(|cx| {
            shared.register(Some(index), cx.waker());
            self.register(cx.waker());
            if self.is_empty() || shared.last_stop() != known {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    async fn empty(&self) {
        poll_fn(|cx| {
            self.register(cx.waker());
            if self.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn register(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    fn abort(&self) {
        self.running.borrow().values().for_each(JoinHandle::abort);
    }

    fn left(&self, id: u64) {
        // The borrows end before anything is dropped or woken.
        let task = self.running.borrow_mut().remove(&id);
        let waker = match self.is_empty() {
            true => self.waker.take(),
            false => None,
        };
        drop(task);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The agent is dropped, which only the end of its runtime does, or it has ended and there are none left.
struct AbortOnDrop<'a, H>(&'a Room<H>);

impl<H> Drop for AbortOnDrop<'_, H> {
    fn drop(&mut self) {
        self.0.tasks.abort();
    }
}

pin_project_lite::pin_project! {
    /// A handler's future. Not an async block, which would hold the future twice.
    struct Connection<F> {
        #[pin]
        future: F,
        leave: Leave,
    }
}

impl<F: Future> Future for Connection<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        match catch_unwind(AssertUnwindSafe(|| this.future.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(_)) => this.leave.end = End::Finished,
            // Noted here, as the future is dropped when the panic has been caught already.
            Err(panic) => {
                this.leave.end = End::Panicked;
                resume_unwind(panic);
            }
        }
        Poll::Ready(())
    }
}

/// Takes the connection out of the room when it is dropped.
struct Leave {
    tasks: Rc<Tasks>,
    id: u64,
    ticket: Ticket,
    end: End,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.ticket.note(self.end);
        self.tasks.left(self.id);
    }
}
