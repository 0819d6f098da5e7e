//! A server with its own thread and its own runtime.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::{Metrics, Runtime};

/// Accepts connections on a loopback port and gives each to a task. A handler that panics or fails makes
/// [`Server::stop`] fail.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    jobs: Option<UnboundedSender<Job>>,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Runs on the worker, between its tasks.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug, Default)]
struct Shared {
    handler_failures: Mutex<Vec<String>>,
    accept_errors: Mutex<Vec<io::Error>>,
}

impl Shared {
    fn record_failure(&self, result: thread::Result<io::Result<()>>) {
        let failure = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            // The panic hook has printed the message.
            Err(_) => "panicked".to_owned(),
        };
        self.handler_failures.lock().unwrap().push(failure);
    }
}

impl Server {
    /// With a runtime as the environment asks for it.
    pub fn start<H, F>(handler: H) -> Self
    where
        H: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = io::Result<()>> + 'static,
    {
        Self::start_on(|| runtime::Builder::new().build().unwrap(), handler)
    }

    /// With the runtime that `build` makes, on the server's thread.
    pub fn start_on<B, H, F>(build: B, handler: H) -> Self
    where
        B: FnOnce() -> Runtime + Send + 'static,
        H: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = io::Result<()>> + 'static,
    {
        let shared = Arc::new(Shared::default());
        let (jobs, job_queue) = unbounded();
        let (addr_sender, addr) = mpsc::channel();
        let thread = thread::spawn({
            let shared = shared.clone();
            move || {
                build().block_on(async move {
                    let listener = TcpListener::bind(crate::loopback()).await.unwrap();
                    addr_sender.send(listener.local_addr().unwrap()).unwrap();
                    runtime::spawn(accept_all(listener, handler, shared));
                    run_jobs(job_queue).await;
                });
            }
        });
        Self {
            addr: addr.recv().expect("the server starts"),
            jobs: Some(jobs),
            shared,
            thread: Some(thread),
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Runs `job` on the worker and returns what it returned.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::sync_channel(1);
        let job = Box::new(move || sender.send(job()).unwrap());
        self.jobs.as_ref().unwrap().unbounded_send(job).unwrap();
        result.recv().expect("the worker is alive")
    }

    /// Lets the worker stand still while `meanwhile` runs. What happens to its sockets meanwhile, it finds all at once.
    pub fn hold(&self, meanwhile: impl FnOnce()) {
        let (release, held) = mpsc::channel::<()>();
        let (standing, stands) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                self.run(move || {
                    standing.send(()).unwrap();
                    // Ends also when `meanwhile` panics.
                    let _ = held.recv();
                });
            });
            stands.recv().unwrap();
            meanwhile();
            drop(release);
        });
    }

    pub fn metrics(&self) -> Metrics {
        self.run(runtime::metrics)
    }

    /// The errors that `accept` has returned since the last call. What is not taken makes [`Server::stop`] fail.
    pub fn take_accept_errors(&self) -> Vec<io::Error> {
        std::mem::take(&mut *self.shared.accept_errors.lock().unwrap())
    }

    /// Ends the server. Fails if anything has gone wrong in it.
    pub fn stop(mut self) {
        self.join();
        let failures = std::mem::take(&mut *self.shared.handler_failures.lock().unwrap());
        assert!(failures.is_empty(), "handlers failed: {failures:?}");
        let errors = self.take_accept_errors();
        assert!(errors.is_empty(), "accept failed: {errors:?}");
    }

    fn join(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if !thread::panicking() {
                result.expect("the server's thread ended well");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.join();
    }
}

async fn accept_all<H, F>(listener: TcpListener, handler: H, shared: Arc<Shared>)
where
    H: Fn(TcpStream) -> F,
    F: Future<Output = io::Result<()>> + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                let handled = AssertUnwindSafe(handler(stream)).catch_unwind();
                // Not an async block, which would hold the handler's future twice: tests measure the memory of a
                // connection.
                runtime::spawn(handled.map(move |result| shared.record_failure(result)));
            }
            Err(error) => {
                shared.accept_errors.lock().unwrap().push(error);
                // If the error comes back at once, for ever, the others still get their turn to say so.
                runtime::yield_now().await;
            }
        }
    }
}

async fn run_jobs(mut jobs: UnboundedReceiver<Job>) {
    while let Some(job) = jobs.next().await {
        job();
    }
}
