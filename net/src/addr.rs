//! From what a program names an endpoint by to the socket addresses that it means.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::vec;

use sealed::Endpoint;

/// Something that names one or more socket addresses.
///
/// It is what [`TcpListener::bind`](crate::TcpListener::bind),
/// [`TcpStream::connect`](crate::TcpStream::connect) and [`lookup_host`] take. Implemented for
/// the address types of `std`, for pairs of a host or an IP address and a port, for strings
/// (`"localhost:80"`, `"127.0.0.1:80"`, `"[::1]:80"`), for slices of addresses, and for
/// references to all of these.
///
/// Addresses and literals are understood in place. Names are resolved by the system's resolver
/// (`getaddrinfo`), which blocks, and therefore on the thread pool of
/// [`runtime::spawn_blocking`].
///
/// The trait is sealed: its method is private and it cannot be implemented elsewhere.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// let any_port = net::TcpListener::bind(("127.0.0.1", 0)).await?;
/// let stream = net::TcpStream::connect(any_port.local_addr()?).await?;
/// # drop(stream);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub trait ToSocketAddrs: Endpoint {}

/// Resolves `host` to its socket addresses.
///
/// A name is resolved once, without a cache, and its addresses come in the resolver's order.
///
/// # Cancel safety
///
/// Safe. A lookup that was dropped runs to its end on its pool thread and its result is discarded.
///
/// # Errors
///
/// [`InvalidInput`](io::ErrorKind::InvalidInput) if a string is not of the form `host:port`, and
/// the resolver's error if the name has no address.
///
/// # Panics
///
/// Outside a runtime, if `host` is a name that has to be resolved.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// for address in net::lookup_host("localhost:80").await? {
///     assert!(address.ip().is_loopback());
///     assert_eq!(address.port(), 80);
/// }
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub async fn lookup_host<T: ToSocketAddrs>(
    host: T,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    resolve(host.target()?).await
}

/// Calls `attempt` with each address of `endpoint` until one succeeds.
///
/// The error is that of the last attempt, untouched, so that it keeps the kernel's errno.
pub(crate) async fn first_success<T>(
    endpoint: impl ToSocketAddrs,
    attempt: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last_error = None;
    for address in resolve(endpoint.target()?).await? {
        match attempt(address).await {
            Ok(value) => return Ok(value),
            Err(error) => last_error = Some(error),
        }
    }
    Err(last_error.unwrap_or_else(|| invalid_input("no socket address to try")))
}

/// What an [`Endpoint`] comes down to before any name is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One address: the common case, which allocates nothing.
    One(SocketAddr),
    /// Several addresses, possibly none.
    Many(Vec<SocketAddr>),
    /// A name for the resolver.
    Name { host: String, port: u16 },
}

async fn resolve(target: Target) -> io::Result<Addresses> {
    match target {
        Target::One(address) => Ok(Addresses::One(Some(address))),
        Target::Many(addresses) => Ok(Addresses::Many(addresses.into_iter())),
        Target::Name { host, port } => {
            let lookup = move || std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
            let found = runtime::spawn_blocking(lookup)
                .await
                .map_err(|lost| io::Error::other(lost.to_string()))?;
            Ok(Addresses::Many(found?))
        }
    }
}

/// The addresses of one resolved [`Target`].
enum Addresses {
    One(Option<SocketAddr>),
    Many(vec::IntoIter<SocketAddr>),
}

impl Iterator for Addresses {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Addresses::One(address) => address.take(),
            Addresses::Many(addresses) => addresses.next(),
        }
    }
}

mod sealed {
    use super::Target;
    use std::io;

    /// The private half of [`ToSocketAddrs`](super::ToSocketAddrs).
    pub trait Endpoint {
        fn target(&self) -> io::Result<Target>;
    }
}

impl ToSocketAddrs for SocketAddr {}
impl Endpoint for SocketAddr {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::One(*self))
    }
}

impl ToSocketAddrs for SocketAddrV4 {}
impl Endpoint for SocketAddrV4 {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::One(SocketAddr::V4(*self)))
    }
}

impl ToSocketAddrs for SocketAddrV6 {}
impl Endpoint for SocketAddrV6 {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::One(SocketAddr::V6(*self)))
    }
}

impl ToSocketAddrs for (IpAddr, u16) {}
impl Endpoint for (IpAddr, u16) {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::One(SocketAddr::from(*self)))
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {}
impl Endpoint for (Ipv4Addr, u16) {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::One(SocketAddr::from(*self)))
    }
}

impl ToSocketAddrs for (Ipv6Addr, u16) {}
impl Endpoint for (Ipv6Addr, u16) {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::One(SocketAddr::from(*self)))
    }
}

impl ToSocketAddrs for [SocketAddr] {}
impl Endpoint for [SocketAddr] {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::Many(self.to_vec()))
    }
}

impl ToSocketAddrs for (&str, u16) {}
impl Endpoint for (&str, u16) {
    fn target(&self) -> io::Result<Target> {
        let (host, port) = *self;
        Ok(host_target(host, port))
    }
}

impl ToSocketAddrs for (String, u16) {}
impl Endpoint for (String, u16) {
    fn target(&self) -> io::Result<Target> {
        let (host, port) = self;
        Ok(host_target(host, *port))
    }
}

impl ToSocketAddrs for str {}
impl Endpoint for str {
    fn target(&self) -> io::Result<Target> {
        if let Ok(address) = self.parse() {
            return Ok(Target::One(address));
        }
        let (host, port) = self
            .rsplit_once(':')
            .ok_or_else(|| invalid_input("a socket address needs a port, as in host:port"))?;
        let port = port
            .parse()
            .map_err(|_| invalid_input("the port of a socket address is a number up to 65535"))?;
        Ok(host_target(host, port))
    }
}

impl ToSocketAddrs for String {}
impl Endpoint for String {
    fn target(&self) -> io::Result<Target> {
        self.as_str().target()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {}
impl<T: Endpoint + ?Sized> Endpoint for &T {
    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

/// A host that is a literal never leaves the worker; anything else is a name.
fn host_target(host: &str, port: u16) -> Target {
    match host.parse::<IpAddr>() {
        Ok(ip) => Target::One(SocketAddr::new(ip, port)),
        Err(_) => Target::Name {
            host: host.to_owned(),
            port,
        },
    }
}

fn invalid_input(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Target {
        Target::One(text.parse().unwrap())
    }

    fn name(host: &str, port: u16) -> Target {
        Target::Name {
            host: host.to_owned(),
            port,
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        runtime::Builder::new().build().unwrap().block_on(future)
    }

    #[test]
    fn std_types_are_one_address_each() {
        let v4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
        let v6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 1, 2);
        assert_eq!(v4.target().unwrap(), one("127.0.0.1:7"));
        assert_eq!(SocketAddr::V4(v4).target().unwrap(), one("127.0.0.1:7"));
        assert_eq!(v6.target().unwrap(), Target::One(v6.into()));
        assert_eq!(
            (Ipv4Addr::LOCALHOST, 7).target().unwrap(),
            one("127.0.0.1:7")
        );
        assert_eq!((Ipv6Addr::LOCALHOST, 7).target().unwrap(), one("[::1]:7"));
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!((ip, 7).target().unwrap(), one("127.0.0.1:7"));
    }

    #[test]
    fn literals_are_not_names() {
        assert_eq!("127.0.0.1:7".target().unwrap(), one("127.0.0.1:7"));
        assert_eq!("[::1]:7".target().unwrap(), one("[::1]:7"));
        assert_eq!("[fe80::1%3]:7".target().unwrap(), one("[fe80::1%3]:7"));
        assert_eq!(("127.0.0.1", 7).target().unwrap(), one("127.0.0.1:7"));
        assert_eq!(("::1".to_owned(), 7).target().unwrap(), one("[::1]:7"));
    }

    #[test]
    fn other_hosts_are_names() {
        assert_eq!("localhost:7".target().unwrap(), name("localhost", 7));
        let owned = String::from("localhost:0");
        assert_eq!(owned.target().unwrap(), name("localhost", 0));
        assert_eq!(("example", 65535).target().unwrap(), name("example", 65535));
        assert_eq!(("fe80::1%lo", 7).target().unwrap(), name("fe80::1%lo", 7));
    }

    #[test]
    fn references_mean_what_they_refer_to() {
        let list = ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()];
        let slice: &[SocketAddr] = &list;
        assert_eq!(slice.target().unwrap(), Target::Many(list.to_vec()));
        assert_eq!((&slice).target().unwrap(), Target::Many(list.to_vec()));
        assert_eq!((&&"127.0.0.1:7").target().unwrap(), one("127.0.0.1:7"));
    }

    #[test]
    fn malformed_strings_are_invalid_input() {
        let malformed = [
            "",
            "localhost",
            "localhost:",
            "localhost:http",
            "a:65536",
            "a:-1",
        ];
        for text in malformed {
            let error = text.target().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text:?}");
        }
    }

    #[test]
    fn literals_resolve_without_a_runtime() {
        let lookup = lookup_host("127.0.0.1:7");
        let found: Vec<_> = futures::executor::block_on(lookup).unwrap().collect();
        assert_eq!(found, ["127.0.0.1:7".parse().unwrap()]);
    }

    #[test]
    fn names_resolve_on_the_runtime() {
        let found: Vec<_> = block_on(lookup_host(("localhost", 80))).unwrap().collect();
        assert!(!found.is_empty());
        assert!(
            found
                .iter()
                .all(|addr| addr.ip().is_loopback() && addr.port() == 80)
        );
    }

    #[test]
    fn resolver_errors_reach_the_caller() {
        // A label of more than 63 bytes fails in the resolver, before it asks the network.
        let error = block_on(lookup_host(("x".repeat(64), 80))).map(drop);
        assert!(error.is_err());
        let error = block_on(lookup_host(("nul\0byte", 80))).map(drop);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn first_success_stops_at_the_first_success() {
        let list: Vec<SocketAddr> = (1..=4)
            .map(|port| (Ipv4Addr::LOCALHOST, port).into())
            .collect();
        let tried = std::cell::RefCell::new(Vec::new());
        let outcome = futures::executor::block_on(first_success(&list[..], async |addr| {
            tried.borrow_mut().push(addr.port());
            if addr.port() == 3 {
                Ok("three")
            } else {
                Err(io::Error::from_raw_os_error(111))
            }
        }));
        assert_eq!(outcome.unwrap(), "three");
        assert_eq!(*tried.borrow(), [1, 2, 3]);
    }

    #[test]
    fn the_last_error_keeps_its_errno() {
        let list: Vec<SocketAddr> = (1..=3)
            .map(|port| (Ipv4Addr::LOCALHOST, port).into())
            .collect();
        let outcome = futures::executor::block_on(first_success(&list[..], async |addr| {
            Err::<(), _>(io::Error::from_raw_os_error(addr.port().into()))
        }));
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(3));
    }

    #[test]
    fn no_address_is_invalid_input() {
        let none: &[SocketAddr] = &[];
        let outcome = futures::executor::block_on(first_success(none, async |_| Ok(())));
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
