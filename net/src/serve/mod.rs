//! Servers on every worker: [`serve`], [`Server`] and its builder.

mod agent;
mod shared;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use runtime::Handle;
use socket2::{Domain, SockAddr};

use self::shared::Shared;
use crate::addr::{self, ToSocketAddrs};
use crate::{TcpStream, socket};

/// Serves every connection to `addr` with `handler`, on all workers of this runtime, until the future is dropped.
///
/// The handler is cloned to each worker. The future that it returns runs there as a task of its own, is not `Send`, and
/// what it gives at its end is dropped. A handler that panics ends its own connection and is counted.
///
/// This is [`Server`] with nothing asked for; that one can also be stopped gently.
///
/// # Cancel safety
///
/// Dropping the future stops the server at once: its connections are closed.
///
/// # Errors
///
/// If the address cannot be listened on. Fails outside a runtime. Errors of single connections, and shortages that pass,
/// do not end it.
///
/// # Examples
///
/// ```no_run
/// use futures::AsyncWriteExt;
///
/// #[runtime::main]
/// async fn main() -> std::io::Result<()> {
///     net::serve("0.0.0.0:7000", |mut stream, peer| async move {
///         stream.write_all(format!("hello, {peer}\n").as_bytes()).await
///     })
///     .await
/// }
/// ```
pub async fn serve<A, H, F>(addr: A, handler: H) -> io::Result<()>
where
    A: ToSocketAddrs,
    H: Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
    F: Future + 'static,
{
    let server = Server::builder().bind(addr).await?;
    server.run(handler).await.map(drop)
}

/// How connections are spread over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// Each worker has a listener of its own (`SO_REUSEPORT`), and the kernel picks one by a hash of the addresses. The
    /// cheapest, and even when connections are many.
    #[default]
    PerWorker,
    /// One listener, whose worker hands each connection to the one that has the fewest. For few and long connections,
    /// which a hash spreads badly; costs a message between workers for each.
    LeastConnections,
}

/// Options of a [`Server`].
///
/// # Examples
///
/// See [`Server`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it binds"]
pub struct ServerBuilder {
    balance: Balance,
    max_connections: usize,
    backlog: u32,
    nodelay: bool,
}

impl ServerBuilder {
    /// How connections are spread over the workers. Default: [`Balance::PerWorker`].
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// Connections that are served at the same time, on all workers together, at least 1. Default: no bound.
    ///
    /// Others wait, and are served beyond the bound when the server stops: up to [`Builder::accept_backlog`](runtime::Builder::accept_backlog) of them accepted for each
    /// listener, then in the kernel's queue.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections.max(1);
        self
    }

    /// Connections that the kernel queues for each listener. Default: 1,024, at most `net.core.somaxconn`.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Whether small writes leave at once (`TCP_NODELAY`). Default: yes. Connections inherit it from the listener, at no
    /// cost of their own.
    pub fn nodelay(mut self, nodelay: bool) -> Self {
        self.nodelay = nodelay;
        self
    }

    /// Listens on `addr`, with all workers of this runtime that can be started.
    ///
    /// From here on the kernel accepts connections; they are served when [`Server::run`] is called. An address that
    /// another socket listens on is refused, although listeners that share a port (`SO_REUSEPORT`) could share it.
    ///
    /// # Errors
    ///
    /// What the system reports for the last address that was tried. Fails outside a runtime.
    pub async fn bind<A: ToSocketAddrs>(self, addr: A) -> io::Result<Server> {
        let runtime = Handle::try_current()
            .ok_or_else(|| io::Error::other("a server needs a Ringshot runtime"))?;
        let mut workers = Vec::new();
        for (worker, start) in runtime.spawn_on_each(|_| async {}).into_iter().enumerate() {
            // The runtime has said why one could not be started.
            if start.await.is_ok() {
                workers.push(worker);
            }
        }
        let listeners =
            addr::first_success(addr, async |addr| self.listen(addr, workers.len())).await?;
        Ok(Server {
            shared: Shared::new(workers.len(), self.max_connections, self.balance),
            runtime,
            workers,
            listeners,
        })
    }

    fn listen(&self, addr: SocketAddr, workers: usize) -> io::Result<Vec<std::net::TcpListener>> {
        let count = match self.balance {
            Balance::PerWorker => workers,
            Balance::LeastConnections => 1,
        };
        // Alone at first: one that shares its port would not notice that somebody else does.
        let mut first = self.listener(addr, false)?;
        let addr = socket::local_addr(&first)?;
        if count > 1 {
            drop(first);
            first = self.listener(addr, true)?;
        }
        let mut listeners = vec![first];
        for _ in 1..count {
            listeners.push(self.listener(addr, true)?);
        }
        // All are bound before the first one listens, so that none gets more than its share.
        listeners
            .into_iter()
            .map(|listener| {
                listener.listen(i32::try_from(self.backlog).unwrap_or(i32::MAX))?;
                Ok(listener.into())
            })
            .collect()
    }

    fn listener(&self, addr: SocketAddr, shared: bool) -> io::Result<socket2::Socket> {
        let listener = socket::new_tcp(Domain::for_address(addr))?;
        listener.set_reuse_address(true)?;
        listener.set_reuse_port(shared)?;
        listener.set_tcp_nodelay(self.nodelay)?;
        listener.bind(&SockAddr::from(addr))?;
        Ok(listener)
    }
}

/// A server that listens, on all workers of its runtime.
///
/// # Examples
///
/// Ctrl-c stops it: what has begun may end within ten seconds.
///
/// ```no_run
/// use std::time::Duration;
///
/// use futures::io::copy_buf;
/// use net::serve::{Balance, Server};
///
/// #[runtime::main]
/// async fn main() -> std::io::Result<()> {
///     let server = Server::builder()
///         .balance(Balance::LeastConnections)
///         .max_connections(10_000)
///         .bind("0.0.0.0:7000")
///         .await?;
///     let stop = server.shutdown_handle();
///     runtime::spawn(async move {
///         runtime::signal::ctrl_c().await?;
///         stop.shutdown(Duration::from_secs(10));
///         std::io::Result::Ok(())
///     });
///     let end = server
///         .run(|stream, _peer| async move {
///             let (rx, mut tx) = stream.into_split();
///             copy_buf(rx, &mut tx).await
///         })
///         .await?;
///     println!("{} connections were cut off", end.aborted);
///     Ok(())
/// }
/// ```
pub struct Server {
    runtime: Handle,
    shared: Arc<Shared>,
    /// Those that take part.
    workers: Vec<usize>,
    listeners: Vec<std::net::TcpListener>,
}

impl Server {
    /// Options, with their defaults.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            balance: Balance::PerWorker,
            max_connections: usize::MAX,
            backlog: 1024,
            nodelay: true,
        }
    }

    /// The address that the server listens on.
    ///
    /// # Errors
    ///
    /// What `getsockname` reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self.listeners.first() {
            Some(listener) => listener.local_addr(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What stops the server, and counts its connections, from any thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Serves until the server is [shut down](ShutdownHandle::shutdown); see [`serve`] for what is asked of the handler.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the server at once: its connections are closed.
    ///
    /// # Errors
    ///
    /// If a worker ends before the server does, because its runtime is shut down. Errors of single connections, and
    /// shortages that pass (too many open files), are counted and do not end it.
    pub async fn run<H, F>(self, handler: H) -> io::Result<Ended>
    where
        H: Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
        F: Future + 'static,
    {
        let abort = AbortOnDrop(&self.shared);
        let mut listeners = self.listeners.into_iter();
        let mut tasks = Vec::new();
        if self.shared.balance() == Balance::LeastConnections
            && let Some(listener) = listeners.next()
        {
            let shared = Arc::clone(&self.shared);
            let accept = move || agent::accept_for_all(shared, listener);
            tasks.push(self.runtime.spawn_on(runtime::worker(), accept));
        }
        for (index, worker) in self.workers.into_iter().enumerate() {
            let (shared, listener) = (Arc::clone(&self.shared), listeners.next());
            let handler = handler.clone();
            let serve = move || agent::serve(shared, index, listener, handler);
            tasks.push(self.runtime.spawn_on(worker, serve));
        }
        let mut outcome = Ok(());
        for task in tasks {
            let ended = task.await.map_err(io::Error::from).and_then(|ended| ended);
            if ended.is_err() && outcome.is_ok() {
                // The others shall not go on without it.
                self.shared.stop(Duration::ZERO);
                outcome = ended;
            }
        }
        drop(abort);
        outcome.map(|()| self.shared.ended())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listeners", &self.listeners)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Agents whose server is not awaited any more end at once.
struct AbortOnDrop<'a>(&'a Shared);

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop(Duration::ZERO);
    }
}

/// How a server's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Connections whose handler came to its end.
    pub finished: u64,
    /// Connections whose handler was dropped when the time was up.
    pub aborted: u64,
}

/// What one worker has to do with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connections {
    /// Connections that it serves now, those included that are on their way to it.
    pub active: usize,
    /// Connections that it was given since the start.
    pub total: u64,
    /// Handlers that have panicked.
    pub panicked: u64,
}

/// Stops a [`Server`], from any thread.
#[derive(Clone)]
pub struct ShutdownHandle {
    shared: Arc<Shared>,
}

impl ShutdownHandle {
    /// Stops accepting, serves what was accepted, and gives the handlers this long to come to their end; what is left
    /// then is dropped. [`Server::run`] returns afterwards. A second call sets a new time, from then on.
    ///
    /// Each listener's queue in the kernel is emptied before the listener is closed, so a connection that is established
    /// by then is served. One whose handshake ends in the moment between is reset by the kernel; a proxy in front
    /// that stops sending new connections first avoids even that.
    pub fn shutdown(&self, grace: Duration) {
        self.shared.stop(grace);
    }

    /// The connections of each worker that takes part.
    pub fn connections(&self) -> Vec<Connections> {
        self.shared.connections()
    }

    /// Failed accepts: shortages of descriptors or memory, mostly.
    pub fn accept_errors(&self) -> u64 {
        self.shared.accept_errors()
    }
}

impl fmt::Debug for ShutdownHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownHandle")
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
