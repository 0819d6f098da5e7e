//! Nothing of ours runs with credentials of its own (B52): a kernel thread that polls for a ring keeps those of the
//! moment in which it was started, also when the process gives them up.

use std::fs;

use net::TcpListener;
use runtime::{Backend, Builder};

/// B52.
#[test]
fn no_kernel_thread_polls_for_a_runtime() {
    Builder::new().build().unwrap().block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let _pair = support::pair(&listener).await;
        let mut rings = 0;
        for entry in fs::read_dir("/proc/self/fd").unwrap() {
            let entry = entry.unwrap();
            // Descriptors of other threads may be gone by now.
            let is_ring = fs::read_link(entry.path())
                .is_ok_and(|target| target.as_os_str() == "anon_inode:[io_uring]");
            if !is_ring {
                continue;
            }
            rings += 1;
            let number = entry.file_name().into_string().unwrap();
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
            let thread = info.lines().find_map(|line| line.strip_prefix("SqThread:"));
            // Some kernels leave the line out where there is none.
            assert!(thread.is_none_or(|id| id.trim() == "-1"), "{info}");
        }
        let on_ring = runtime::features().backend == Backend::Uring;
        assert_eq!(rings, usize::from(on_ring), "rings");
    });
}
