#[runtime::main]
const fn main() {}

#[runtime::main]
async unsafe fn hazard() {}

#[runtime::main]
async extern "C" fn foreign() {}

#[runtime::main]
async unsafe extern "C" fn variadic(_: ...) {}

#[runtime::test]
async unsafe fn works() {}
