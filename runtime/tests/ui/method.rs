struct Server;

impl Server {
    #[runtime::main]
    async fn run(&mut self, port: u16) {
        let _ = (self, port);
    }

    #[runtime::main]
    async fn stop(self: Box<Self>) {}
}

fn main() {
    Server::run();
    Server::stop();
}
