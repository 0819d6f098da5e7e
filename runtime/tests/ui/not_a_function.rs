#[runtime::main]
#[derive(Debug)]
pub struct Main;

#[runtime::main]
const ENTRY: fn() = main;

#[runtime::test]
mod tests {
    pub fn works() {}
}

#[runtime::main]
impl Main {
    fn run(self) {}
}

fn main() {
    Main.run();
    let _ = (ENTRY, tests::works);
}
