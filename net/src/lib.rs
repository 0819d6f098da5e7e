//! TCP for the Ringshot runtime: sockets that are streams fed by the kernel.
//!
//! The types have the names and the manners of `std::net` and tokio, and live on the worker that
//! made them: none of them is `Send`. What a socket receives and accepts arrives through one
//! multishot operation that belongs to the socket, not to the future that happens to wait, so
//! dropping a future, in `select!` for example, never loses a byte or a connection.
//!
//! Reading and writing is done with the traits of `futures-io` (`futures::AsyncReadExt` and its
//! kin) over borrowed buffers, or without a copy with [`TcpStream::recv_stream`] and
//! [`TcpStream::send`]. An echo server and its client:
//!
//! ```
//! use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
//!
//! # runtime::Builder::new().build()?.block_on(async {
//! let listener = net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let server = runtime::spawn(async move {
//!     let (stream, _peer) = listener.accept().await?;
//!     let (mut rx, tx) = stream.into_split();
//!     let mut chunks = rx.recv_stream();
//!     while let Some(chunk) = chunks.next().await {
//!         tx.send(chunk?).await?; // the kernel's own buffer goes back out
//!     }
//!     Ok::<_, std::io::Error>(())
//! });
//!
//! let mut client = net::TcpStream::connect(address).await?;
//! client.write_all(b"hello").await?;
//! let mut reply = [0; 5];
//! client.read_exact(&mut reply).await?;
//! assert_eq!(&reply, b"hello");
//! drop(client); // the server sees the end of the stream and returns
//! server.await.expect("the server does not panic")?;
//! # Ok::<_, std::io::Error>(()) })?;
//! # Ok::<_, std::io::Error>(())
//! ```
//!
//! A socket stays on its worker; the compiler says so:
//!
//! ```compile_fail,E0277
//! fn moves_to_another_thread<T: Send>() {}
//! moves_to_another_thread::<net::TcpStream>();
//! ```

#![forbid(unsafe_code)]

mod addr;
pub mod serve;
mod socket;
pub mod tcp;

pub use addr::{ToSocketAddrs, lookup_host};
pub use serve::serve;
pub use tcp::{TcpListener, TcpSocket, TcpStream};

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
