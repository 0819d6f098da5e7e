// The function may come out of a macro, whole or with a body from elsewhere.
macro_rules! whole {
    ($item:item) => {
        #[runtime::main]
        $item
    };
}

macro_rules! parts {
    ($name:ident, $output:ty, $body:block) => {
        #[runtime::main]
        async fn $name() -> $output $body
    };
}

whole! {
    async fn greet() -> &'static str {
        runtime::yield_now().await;
        "hello"
    }
}

parts!(answer, u8, {
    runtime::yield_now().await;
    42
});

fn main() {
    assert_eq!(greet(), "hello");
    assert_eq!(answer(), 42);
}
