use ::runtime as ring;

mod runtime {}

#[ring::main(crate = "ring")]
async fn main() {
    ring::yield_now().await;
}
