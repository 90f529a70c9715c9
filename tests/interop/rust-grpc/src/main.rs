//! A long-lived process that runs the official Rust client for RocketMQ 5 for a test.
//!
//! It speaks the protocol of the other drivers: each line on stdin is a command {"id": 1, "do": "producer.send", …}, each
//! line on stdout an answer {"id": 1, "ok": …} or {"id": 1, "error": {"type", "code", "message"}}. Commands run side by
//! side. The client logs to stderr. At the end of stdin the process exits without any good-bye.

mod consumers;
mod named;
mod producers;
mod values;

use std::io::Write;
use std::sync::Arc;

use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

use consumers::SimpleConsumers;
use producers::Producers;
use values::{text, Failure};

#[derive(Default)]
struct Clients {
    producers: Producers,
    simple_consumers: SimpleConsumers,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let clients = Arc::new(Clients::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tokio::spawn(answer(clients.clone(), line));
    }
    std::process::exit(0);
}

async fn answer(clients: Arc<Clients>, line: String) {
    let request: Value = serde_json::from_str(&line).unwrap_or_default();
    let id = request["id"].clone();
    // The client panics at codes that are newer than it is: the command fails then, not the process.
    let ran = tokio::spawn(async move { run(&clients, request).await }).await;
    let answered = match ran {
        Ok(Ok(result)) => json!({"id": id, "ok": result}),
        Ok(Err(failure)) => json!({"id": id, "error": failure.to_json()}),
        Err(panic) => json!({"id": id, "error": Failure::new("Panic", panic).to_json()}),
    };
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{answered}").and_then(|()| stdout.flush());
}

async fn run(clients: &Clients, about: Value) -> Result<Value, Failure> {
    match text(&about["do"]) {
        "hello" => Ok(json!({"client": "rust 5", "pid": std::process::id()})),
        "producer.start" => clients.producers.start(&about).await,
        "producer.send" => clients.producers.send(&about).await,
        "producer.checked" => clients.producers.checked(&about).await,
        "producer.stop" => clients.producers.stop(&about).await,
        "simple.start" => clients.simple_consumers.start(&about).await,
        "simple.receive" => clients.simple_consumers.receive(&about).await,
        "simple.ack" => clients.simple_consumers.ack(&about).await,
        "simple.stop" => clients.simple_consumers.stop(&about).await,
        other => Err(Failure::new("UnknownCommand", other)),
    }
}
