//! Simple consumers, and all they have received: a message is known by its number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::conf::SimpleConsumerOption;
use rocketmq::model::common::FilterExpression;
use rocketmq::model::message::MessageView;
use rocketmq::SimpleConsumer;
use serde_json::{json, Value};

use crate::named::Named;
use crate::values::{client_option, subscriptions, text, view, Failure};

#[derive(Default)]
pub struct SimpleConsumers {
    running: Named<Holding>,
}

struct Holding {
    consumer: SimpleConsumer,
    subscriptions: Vec<(String, FilterExpression)>,
    /// The topics take turns: the client asks for one at a time.
    turn: AtomicUsize,
    messages: Mutex<Vec<Arc<MessageView>>>,
}

impl SimpleConsumers {
    pub async fn start(&self, about: &Value) -> Result<Value, Failure> {
        let subscriptions = subscriptions(about);
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(&about["group"]));
        option.set_topics(subscriptions.iter().map(|(topic, _)| topic).collect());
        let mut consumer = SimpleConsumer::new(option, client_option(about))?;
        consumer.start().await?;
        let (turn, messages) = (AtomicUsize::default(), Mutex::default());
        self.running.put(about, Holding { consumer, subscriptions, turn, messages });
        Ok(json!({}))
    }

    pub async fn receive(&self, about: &Value) -> Result<Value, Failure> {
        let held = self.running.get(about)?;
        let (topic, filter) = &held.subscriptions[held.turn.fetch_add(1, Ordering::Relaxed) % held.subscriptions.len()];
        let count = about["count"].as_i64().unwrap_or(32) as i32;
        let invisible = Duration::from_millis(about["invisibleMs"].as_u64().unwrap_or(0));
        let received = held.consumer.receive_with(topic, filter, count, invisible).await?;
        Ok(json!({"messages": received.into_iter().map(|message| held.keep(message)).collect::<Vec<_>>()}))
    }

    pub async fn ack(&self, about: &Value) -> Result<Value, Failure> {
        let held = self.running.get(about)?;
        let mut results = Vec::new();
        for number in about["numbers"].as_array().into_iter().flatten() {
            let message = held.messages.lock().unwrap()[number.as_u64().unwrap_or(0) as usize].clone();
            results.push(match held.consumer.ack(message.as_ref()).await {
                Ok(()) => json!({}),
                Err(error) => json!({"error": Failure::from(error).to_json()}),
            });
        }
        Ok(json!({"results": results}))
    }

    pub async fn stop(&self, about: &Value) -> Result<Value, Failure> {
        self.running.remove(about)?.consumer.shutdown().await?;
        Ok(json!({}))
    }
}

impl Holding {
    fn keep(&self, message: MessageView) -> Value {
        let mut told = view(&message);
        let mut messages = self.messages.lock().unwrap();
        told["number"] = json!(messages.len());
        messages.push(Arc::new(message));
        told
    }
}
