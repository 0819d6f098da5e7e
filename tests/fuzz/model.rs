//! What must be true of the two directions of a connection.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use support::pattern;

/// The bytes from one side to the other.
#[derive(Debug)]
pub struct Direction {
    /// Taken from the writer and not yet given to the reader.
    pub queue: VecDeque<u8>,
    /// The place of the next byte in the pattern.
    position: u64,
    pub end: End,
    pub reader: Reader,
    /// The reader has shut its side down: its end may come at any time.
    pub cut: bool,
}

/// What the writer has said about the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Open,
    /// The shutdown has begun and was given up: the end follows the last byte.
    Wanted,
    Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    Reading,
    /// It was told of the end, or of an error.
    Ended,
    Gone,
}

/// Whether there is a reason for errors: one side has closed with bytes unread, or was sent some afterwards, so that
/// TCP resets the connection. Then bytes may be lost, but are never wrong.
#[derive(Debug, Default)]
pub struct Broken(Cell<bool>);

impl Broken {
    pub fn set(&self) {
        self.0.set(true);
    }

    pub fn is_set(&self) -> bool {
        self.0.get()
    }

    fn check(&self, error: &io::Error) {
        let kind = error.kind();
        assert!(self.is_set(), "{error} without a reason");
        assert!(
            matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "{error:?}"
        );
    }
}

impl Direction {
    /// Directions have different bytes.
    pub fn new(index: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            position: (index as u64) << 40,
            end: End::Open,
            reader: Reader::Reading,
            cut: false,
        }
    }

    /// The next bytes to be written.
    pub fn offer(&self, len: usize) -> Vec<u8> {
        pattern::bytes(self.position, len)
    }

    /// So many of them were taken.
    pub fn wrote(&mut self, offered: &[u8], taken: usize) {
        assert_eq!(self.end, End::Open, "written after the end");
        assert!(taken <= offered.len(), "{taken} of {}", offered.len());
        assert!(taken > 0 || offered.is_empty(), "a write took nothing");
        self.queue.extend(&offered[..taken]);
        self.position += taken as u64;
    }

    pub fn write_failed(&mut self, error: &io::Error, broken: &Broken) {
        if self.end != End::Open && error.kind() == ErrorKind::BrokenPipe {
            return;
        }
        broken.check(error);
    }

    /// The reader sees these bytes next.
    pub fn shows(&self, bytes: &[u8]) {
        assert!(
            self.reader != Reader::Ended || bytes.is_empty(),
            "bytes after the end"
        );
        assert!(
            bytes.len() <= self.queue.len(),
            "more bytes than were written"
        );
        let equal = self
            .queue
            .iter()
            .zip(bytes)
            .all(|(wrote, read)| wrote == read);
        assert!(equal, "wrong bytes");
    }

    pub fn took(&mut self, bytes: &[u8]) {
        self.shows(bytes);
        self.queue.drain(..bytes.len());
    }

    /// The reader is told that no more will come.
    pub fn ended(&mut self, broken: &Broken) {
        let early = !self.queue.is_empty() || self.end == End::Open;
        let excused = self.cut || broken.is_set() || self.reader == Reader::Ended;
        assert!(
            !early || excused,
            "an early end, with {} bytes to come",
            self.queue.len()
        );
        self.reader = Reader::Ended;
    }

    pub fn read_failed(&mut self, error: &io::Error, broken: &Broken) {
        broken.check(error);
        assert_eq!(self.reader, Reader::Reading, "{error} after the end");
        self.reader = Reader::Ended;
    }

    /// Whether a read must be answered, in time, by bytes or the end.
    pub fn is_certain(&self) -> bool {
        let something = !self.queue.is_empty() || self.end != End::Open;
        something && self.reader == Reader::Reading
    }
}
