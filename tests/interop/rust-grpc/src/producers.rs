//! Producers, and what the broker asks them about.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::conf::ProducerOption;
use rocketmq::model::message::MessageView;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::Producer;
use serde_json::{json, Value};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::named::Named;
use crate::values::{client_option, outgoing, text, texts, view, Failure};

#[derive(Default)]
pub struct Producers {
    running: Named<Producing>,
}

struct Producing {
    producer: Producer,
    asked: Arc<Asked>,
}

/// What the broker has asked about, in order, for a test that waits for it.
#[derive(Default)]
struct Asked {
    messages: Mutex<Vec<Value>>,
    added: Notify,
}

impl Asked {
    fn add(&self, message: &MessageView) {
        self.messages.lock().unwrap().push(view(message));
        self.added.notify_waiters();
    }

    async fn wait(&self, count: usize) {
        loop {
            let added = self.added.notified();
            if self.messages.lock().unwrap().len() >= count {
                return;
            }
            added.await;
        }
    }
}

impl Producers {
    pub async fn start(&self, about: &Value) -> Result<Value, Failure> {
        let asked = Arc::new(Asked::default());
        let mut option = ProducerOption::default();
        option.set_topics(texts(&about["topics"]).collect::<Vec<_>>());
        let told = asked.clone();
        // A message says itself what becomes of it when the broker asks: its property "checked".
        let check = Box::new(move |_: String, message: MessageView| {
            told.add(&message);
            match message.properties().get("checked").map(String::as_str) {
                Some("commit") => TransactionResolution::COMMIT,
                Some("rollback") => TransactionResolution::ROLLBACK,
                _ => TransactionResolution::UNKNOWN,
            }
        });
        let mut producer = Producer::new_transaction_producer(option, client_option(about), check)?;
        producer.start().await?;
        self.running.put(about, Producing { producer, asked });
        Ok(json!({}))
    }

    pub async fn send(&self, about: &Value) -> Result<Value, Failure> {
        let from = self.running.get(about)?;
        let messages = about["messages"].as_array().cloned().unwrap_or_default();
        let topic = text(&about["topic"]).to_string();
        let mut results = Vec::with_capacity(messages.len());
        if text(&about["mode"]) != "async" {
            for fields in &messages {
                results.push(from.send_one(&topic, fields).await);
            }
            return Ok(json!({"results": results}));
        }
        let started: Vec<_> = messages
            .into_iter()
            .map(|fields| {
                let (from, topic) = (from.clone(), topic.clone());
                tokio::spawn(async move { from.send_one(&topic, &fields).await })
            })
            .collect();
        for sent in started {
            results.push(sent.await.unwrap_or_else(|panic| json!({"error": Failure::new("Panic", panic).to_json()})));
        }
        Ok(json!({"results": results}))
    }

    pub async fn checked(&self, about: &Value) -> Result<Value, Failure> {
        let from = self.running.get(about)?;
        let limit = Duration::from_millis(about["timeoutMs"].as_u64().unwrap_or(0));
        let _ = timeout(limit, from.asked.wait(about["count"].as_u64().unwrap_or(0) as usize)).await;
        let messages = from.asked.messages.lock().unwrap().clone();
        Ok(json!({"messages": messages}))
    }

    pub async fn stop(&self, about: &Value) -> Result<Value, Failure> {
        self.running.remove(about)?.producer.shutdown().await?;
        Ok(json!({}))
    }
}

impl Producing {
    async fn send_one(&self, topic: &str, fields: &Value) -> Value {
        match self.try_send(topic, fields).await {
            Ok(receipt) => receipt,
            Err(failure) => json!({"error": failure.to_json()}),
        }
    }

    /// A message with the property "outcome" is sent in a transaction, which ends so.
    async fn try_send(&self, topic: &str, fields: &Value) -> Result<Value, Failure> {
        let Some(outcome) = fields["properties"]["outcome"].as_str() else {
            let receipt = self.producer.send(outgoing(topic, fields, false)?).await?;
            return Ok(json!({"messageId": receipt.message_id()}));
        };
        let transaction = self.producer.send_transaction_message(outgoing(topic, fields, true)?).await?;
        let (id, number) = (transaction.message_id().to_string(), transaction.transaction_id().to_string());
        match outcome {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => (),
        }
        Ok(json!({"messageId": id, "transactionId": number}))
    }
}
