//! [`SendBuf`].

use bytes::Bytes;

use super::pool::Lease;

/// Bytes that a socket can send without copying them.
///
/// # Examples
///
/// ```
/// use runtime::io::SendBuf;
///
/// assert_eq!(SendBuf::from("static text").as_ref(), b"static text");
/// assert_eq!(SendBuf::from(vec![1, 2, 3]).len(), 3);
/// ```
#[derive(Debug)]
pub struct SendBuf(Owned);

#[derive(Debug)]
enum Owned {
    Lease(Lease),
    /// Whatever else owns its bytes. A third kind would need a tag of its own, in each future that sends.
    Bytes(Bytes),
}

impl SendBuf {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.as_ref().is_empty()
    }
}

impl AsRef<[u8]> for SendBuf {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Owned::Lease(lease) => lease,
            Owned::Bytes(bytes) => bytes,
        }
    }
}

impl From<Lease> for SendBuf {
    fn from(lease: Lease) -> Self {
        Self(Owned::Lease(lease))
    }
}

impl From<Vec<u8>> for SendBuf {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl From<Box<[u8]>> for SendBuf {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl From<String> for SendBuf {
    fn from(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}

impl From<Bytes> for SendBuf {
    fn from(bytes: Bytes) -> Self {
        Self(Owned::Bytes(bytes))
    }
}

impl From<&'static [u8]> for SendBuf {
    fn from(bytes: &'static [u8]) -> Self {
        Self::from(Bytes::from_static(bytes))
    }
}

impl From<&'static str> for SendBuf {
    fn from(text: &'static str) -> Self {
        Self::from(text.as_bytes())
    }
}

const _: () = assert!(size_of::<SendBuf>() == size_of::<Bytes>());
