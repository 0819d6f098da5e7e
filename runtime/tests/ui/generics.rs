#[runtime::main]
async fn main<'a, T: Default, const N: usize>() {
    let _: (&'a str, [T; N]);
}

#[runtime::main]
async fn bounded()
where
    u8: Copy,
{
}

#[runtime::test]
async fn works<T>() {}
