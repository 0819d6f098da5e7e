//! Ten thousand connections on which nothing happens (B15). Their other ends are in a process of their own, as one has
//! not descriptors enough for both.

use std::net::TcpStream as Peer;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use net::{TcpListener, TcpStream};
use runtime::time::sleep;
use support::{Child, Parent, Watchdog, thread_id, thread_usage};

use crate::run;

const CONNECTIONS: usize = 10_000;
/// How long the worker is watched.
const WATCHED: Duration = Duration::from_secs(1);

/// B15: neither those that wait for bytes nor those that wait for connections cost anything.
#[test]
fn idle_connections_cost_no_time() {
    const NAME: &str = "idle::idle_connections_cost_no_time";
    if let Some(parent) = Parent::in_child(NAME) {
        return hold_the_other_ends(&parent);
    }
    run(NAME, async || {
        support::raise_fd_limit();
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let mut child = Child::start(NAME);
        let mut answer = runtime::spawn_blocking({
            let command = listener.local_addr().unwrap().to_string();
            move || {
                assert_eq!(child.ask(&command), "connected");
                child
            }
        });
        let mut readers = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await.unwrap();
            readers.push(runtime::spawn(echo_once(stream)));
        }
        let mut child = (&mut answer).await.unwrap();
        let another = async { listener.accept().await.map(drop) };
        assert!(futures::FutureExt::now_or_never(another).is_none());
        crate::some_turns().await;

        let enters = runtime::metrics().enters;
        let usage = thread_usage(thread_id());
        // Doing nothing for a while is what is measured here.
        sleep(WATCHED).await;
        let enters = runtime::metrics().enters - enters;
        let cpu = Duration::from_nanos(thread_usage(thread_id()).cpu_ns - usage.cpu_ns);
        assert!(enters <= 4, "{enters} enters in {WATCHED:?} of idling");
        assert!(
            cpu < support::idle_cpu(WATCHED),
            "{cpu:?} of CPU in {WATCHED:?} of idling"
        );

        // They were idle, not dead.
        let answer = runtime::spawn_blocking(move || {
            assert_eq!(child.ask("ping"), "all echoed");
            child
        });
        for reader in readers {
            reader.await.unwrap().unwrap();
        }
        answer.await.unwrap().finish();
    });
}

async fn echo_once(mut stream: TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    stream.write_all(&byte).await
}

fn hold_the_other_ends(parent: &Parent) {
    let _watchdog = Watchdog::start("the child", Duration::from_secs(60));
    support::raise_fd_limit();
    let addr = parent.hear().unwrap().parse().unwrap();
    let mut peers: Vec<Peer> = support::connect_many(addr, CONNECTIONS);
    parent.say("connected");
    assert_eq!(parent.hear().as_deref(), Some("ping"));
    for (index, peer) in peers.iter_mut().enumerate() {
        std::io::Write::write_all(peer, &[index as u8]).unwrap();
    }
    for (index, mut peer) in peers.into_iter().enumerate() {
        let mut byte = [0];
        std::io::Read::read_exact(&mut peer, &mut byte).unwrap();
        assert_eq!(byte, [index as u8]);
        support::reset(peer);
    }
    parent.say("all echoed");
}
