#[runtime::main(backend = "kqueue", fast)]
pub unsafe fn main<T>(_: T) {
    helper();
}

fn helper() {
    main();
}
