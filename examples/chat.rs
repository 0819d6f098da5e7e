//! A chat room: what one client says, all others read.
//!
//! Each client has one task that waits for two things at once: a line from its socket, or a message
//! from the room. `select!` drops whichever did not happen. That is safe here. A receive belongs to
//! the socket, not to the future that waits for it, so half a line that has arrived is still there
//! at the next turn of the loop.
//!
//! All tasks share one thread, so the room is an `Rc<RefCell<_>>`: no lock, and nothing has to be
//! `Send`. The other workers, one for each core, are never started, as nobody sends them anything.
//!
//! Ctrl-C or SIGTERM closes the room: everybody is told, and hears what was said before.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use futures::channel::mpsc;
use futures::stream::FuturesUnordered;
use futures::{
    AsyncBufReadExt, AsyncWriteExt, FutureExt, Stream, StreamExt, select_biased, stream,
};
use net::tcp::{ReadHalf, WriteHalf};
use net::{TcpListener, TcpSocket, TcpStream};
use runtime::io::SendBuf;
use runtime::signal::{Signal, SignalKind};
use runtime::time::timeout;

/// A chat room for anybody with netcat.
///
/// Shows `select!` around a read without fear, and bounded queues: a client that does not read is
/// dropped from the room before it costs the others anything.
#[derive(Parser)]
#[command(after_help = "\
Try it, from two terminals:
  cargo run --release --example chat
  nc 127.0.0.1 7002

Type a line and press Enter to say it. Commands: /nick NAME, /who, /quit")]
struct Args {
    /// Where to listen; port 0 lets the system choose one
    #[arg(default_value = "127.0.0.1:7002")]
    addr: String,
}

const MAX_MEMBERS: usize = 100;
/// Messages that wait for one client. Each task says at most one thing before the others get their
/// turn, so two rounds of a full room fit in; only a client that does not read can fill it.
const MAILBOX_MESSAGES: usize = 2 * MAX_MEMBERS;
/// A longer line is passed on in pieces.
const MAX_LINE_BYTES: usize = 4096;
const MAX_NICK_CHARS: usize = 24;
/// Small, so that the room notices a client that does not read after some KiB instead of some MiB.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// How long a client may leave us waiting before it is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);

#[runtime::main(workers = "per-core")]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = serve(&args).await {
        eprintln!("chat: {}: {error}", args.addr);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn serve(args: &Args) -> io::Result<()> {
    let listener = listen(&args.addr).await?;
    println!(
        "chat: listening on {} ({})",
        listener.local_addr()?,
        runtime::features()
    );
    let room = Rc::new(RefCell::new(Room::default()));
    let mut signals = signals()?;
    let mut clients = FuturesUnordered::new();
    loop {
        select_biased! {
            _ = signals.next().fuse() => break,
            accepted = listener.accept().fuse() => match accepted {
                // An error ends that client's task; its seat in the room is given back when it is
                // dropped.
                Ok((stream, _peer)) => clients.push(runtime::spawn(client(stream, Rc::clone(&room)))),
                Err(error) => eprintln!("chat: accept: {error}"),
            },
            // The handles of clients that have left.
            _ = clients.select_next_some() => {}
        }
    }
    drop(listener);
    room.borrow_mut().close();
    println!("chat: closing, {} clients", clients.len());
    while clients.next().await.is_some() {}
    Ok(())
}

/// What tells the server to stop.
fn signals() -> io::Result<impl Stream<Item = ()> + Unpin> {
    let interrupts = Signal::new(SignalKind::interrupt())?;
    let terminations = Signal::new(SignalKind::terminate())?;
    Ok(stream::select(interrupts, terminations).map(drop))
}

async fn listen(addr: &str) -> io::Result<TcpListener> {
    let addr = net::lookup_host(addr)
        .await?
        .next()
        .ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit both.
    socket.set_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(addr)?;
    socket.listen(128)
}

/// One client, from its arrival to its last byte.
async fn client(mut stream: TcpStream, room: Rc<RefCell<Room>>) -> io::Result<()> {
    let (mut rx, mut tx) = stream.split();
    match Seat::take(room) {
        Some((seat, mailbox)) => converse(&mut rx, &mut tx, seat, mailbox).await?,
        None => send(&tx, "* the room is full, try again later\n").await?,
    }
    timeout(PATIENCE, tx.close()).await?
}

async fn converse(
    rx: &mut ReadHalf<'_>,
    tx: &mut WriteHalf<'_>,
    seat: Seat,
    mut mailbox: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    send(
        tx,
        format!(
            "* you are {}; commands: /nick NAME, /who, /quit\n",
            seat.nick()
        ),
    )
    .await?;
    let mut line = Vec::new();
    loop {
        // Messages come first: what the others said is passed on before this client says more.
        select_biased! {
            message = mailbox.next() => match message {
                Some(message) => send(tx, message).await?,
                // The room has closed the mailbox; see `Room::tell` and `Room::close`.
                None => return send(tx, seat.farewell()).await,
            },
            more = read_line(rx, &mut line).fuse() => {
                let more = more?;
                let text = printable(&line);
                line.clear();
                if let Some(reply) = seat.hear(&text) {
                    send(tx, reply).await?;
                }
                if !more || text == "/quit" {
                    return Ok(());
                }
                // Whole pages may have arrived at once; the others get to read each line before the
                // next one.
                runtime::yield_now().await;
            },
        }
    }
}

/// Reads to the end of a line, and returns `false` if it was the last.
///
/// # Cancel safety
///
/// Bytes move from the socket to `line` in one step, after the only await. Dropped there, this
/// future has taken nothing that is not in `line`, and the next call goes on from it.
async fn read_line(rx: &mut ReadHalf<'_>, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let arrived = rx.fill_buf().await?;
        if arrived.is_empty() {
            return Ok(false);
        }
        let wanted = arrived
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(arrived.len(), |end| end + 1);
        let taken = wanted.min(MAX_LINE_BYTES - line.len());
        line.extend_from_slice(&arrived[..taken]);
        rx.consume_unpin(taken);
        if line.ends_with(b"\n") || line.len() == MAX_LINE_BYTES {
            return Ok(true);
        }
    }
}

/// Gives a message to the client's socket, which keeps it without a copy until the kernel takes it.
async fn send(tx: &WriteHalf<'_>, message: impl Into<SendBuf>) -> io::Result<()> {
    timeout(PATIENCE, tx.send(message)).await?
}

/// The line as text that cannot harm anybody's terminal: no control characters, and marks in place
/// of invalid UTF-8.
fn printable(line: &[u8]) -> String {
    String::from_utf8_lossy(line)
        .chars()
        .filter(|c| !c.is_control())
        .collect()
}

/// Who is here.
#[derive(Default)]
struct Room {
    members: BTreeMap<u64, Member>,
    next_id: u64,
    closed: bool,
}

struct Member {
    nick: String,
    mailbox: mpsc::Sender<Bytes>,
}

impl Room {
    /// Puts a message into the mailbox of everybody but `author`. One whose mailbox is full leaves
    /// the room.
    fn tell(&mut self, author: u64, text: String) {
        let message = Bytes::from(text);
        let mut slow = Vec::new();
        for (id, member) in &mut self.members {
            if *id != author && member.mailbox.try_send(message.clone()).is_err() {
                slow.push(*id);
            }
        }
        for id in slow {
            // Dropping a member closes its mailbox, which its task finds out when it has read what
            // was in there.
            if let Some(member) = self.members.remove(&id) {
                self.tell(
                    id,
                    format!("* {} was dropped: too slow to read\n", member.nick),
                );
            }
        }
    }

    /// Sends everybody home: each hears what was said so far, and then that it was the last.
    fn close(&mut self) {
        self.closed = true;
        self.members.clear();
    }

    /// A new number and the first name to go with it.
    fn new_guest(&mut self) -> (u64, String) {
        loop {
            self.next_id += 1;
            let nick = format!("guest-{}", self.next_id);
            if !self.is_taken(&nick) {
                return (self.next_id, nick);
            }
        }
    }

    fn is_taken(&self, nick: &str) -> bool {
        self.members.values().any(|member| member.nick == nick)
    }
}

/// A client's place in the room; dropping it leaves the room.
struct Seat {
    room: Rc<RefCell<Room>>,
    id: u64,
}

impl Seat {
    /// A seat and its mailbox, or `None` when the room is full or closed.
    fn take(shared: Rc<RefCell<Room>>) -> Option<(Self, mpsc::Receiver<Bytes>)> {
        let mut room = shared.borrow_mut();
        if room.closed || room.members.len() == MAX_MEMBERS {
            return None;
        }
        let (id, nick) = room.new_guest();
        let (mailbox, messages) = mpsc::channel(MAILBOX_MESSAGES);
        room.tell(id, format!("* {nick} joined\n"));
        room.members.insert(id, Member { nick, mailbox });
        drop(room);
        Some((Self { room: shared, id }, messages))
    }

    /// What is said to one who has to go.
    fn farewell(&self) -> &'static str {
        match self.room.borrow().closed {
            true => "* the room closes\n",
            false => "* you were dropped: too slow to read\n",
        }
    }

    fn nick(&self) -> String {
        self.room
            .borrow()
            .members
            .get(&self.id)
            .map_or_else(|| "nobody".into(), |member| member.nick.clone())
    }

    /// Acts on one line of this client, and returns what only this client is told.
    fn hear(&self, text: &str) -> Option<String> {
        match text.split_once(' ').unwrap_or((text, "")) {
            ("", "") => None,
            ("/nick", nick) => Some(self.rename(nick.trim())),
            ("/who", _) => Some(self.who()),
            ("/quit", _) => Some("* bye\n".into()),
            (command, _) if command.starts_with('/') => {
                Some(format!("* unknown command: {command}\n"))
            }
            _ => {
                let said = format!("{}: {text}\n", self.nick());
                self.room.borrow_mut().tell(self.id, said);
                None
            }
        }
    }

    fn rename(&self, nick: &str) -> String {
        let mut room = self.room.borrow_mut();
        let length = nick.chars().count();
        if length == 0 || length > MAX_NICK_CHARS || nick.contains(char::is_whitespace) {
            return format!("* a nick name is one word of 1 to {MAX_NICK_CHARS} characters\n");
        }
        if room.is_taken(nick) {
            return format!("* {nick} is taken\n");
        }
        if let Some(member) = room.members.get_mut(&self.id) {
            let old = std::mem::replace(&mut member.nick, nick.to_owned());
            room.tell(self.id, format!("* {old} is now {nick}\n"));
        }
        format!("* you are now {nick}\n")
    }

    fn who(&self) -> String {
        let room = self.room.borrow();
        let nicks: Vec<_> = room
            .members
            .values()
            .map(|member| member.nick.as_str())
            .collect();
        format!("* {} here: {}\n", nicks.len(), nicks.join(", "))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut room = self.room.borrow_mut();
        // Absent if the room has dropped this client before.
        if let Some(member) = room.members.remove(&self.id) {
            room.tell(self.id, format!("* {} left\n", member.nick));
        }
    }
}
