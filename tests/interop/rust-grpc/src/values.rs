//! Values of commands and answers: messages, errors, and how a client finds its server.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use base64::prelude::{Engine, BASE64_STANDARD};
use rocketmq::conf::ClientOption;
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use serde_json::{json, Value};

/// Why a command failed, as the test hears of it.
pub struct Failure {
    kind: String,
    message: String,
}

impl Failure {
    pub fn new(kind: &str, message: impl ToString) -> Self {
        Failure { kind: kind.to_string(), message: message.to_string() }
    }

    /// The client tells codes by their names, in the text.
    pub fn to_json(&self) -> Value {
        json!({"type": self.kind, "code": null, "message": self.message})
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::new(&format!("{:?}", error.kind()), &error)
    }
}

/// The text of a value, empty if there is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn texts<'a>(value: &'a Value) -> impl Iterator<Item = String> + 'a {
    value.as_array().into_iter().flatten().map(|each| text(each).to_string())
}

/// What a consumer waits unless it is told: its deadline is the same, and the official proxy refuses less.
const AWAIT_MS: u64 = 6_000;

pub fn client_option(about: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(&about["endpoints"]));
    option.set_enable_tls(about["tls"].as_bool().unwrap_or(false));
    option.set_long_polling_timeout(Duration::from_millis(about["awaitMs"].as_u64().unwrap_or(AWAIT_MS)));
    if let (Some(key), Some(secret)) = (about["accessKey"].as_str(), about["secretKey"].as_str()) {
        option.set_access_key(key);
        option.set_secret_key(secret);
    }
    option
}

/// The topics that a client subscribes to: to an expression of tags, null, or {"sql"}.
pub fn subscriptions(about: &Value) -> Vec<(String, FilterExpression)> {
    let wanted = about["subscriptions"].as_object().into_iter().flatten();
    wanted.map(|(topic, expression)| (topic.clone(), filter(expression))).collect()
}

fn filter(expression: &Value) -> FilterExpression {
    match expression["sql"].as_str() {
        Some(sql) => FilterExpression::new(FilterType::Sql, sql),
        None => FilterExpression::new(FilterType::Tag, expression.as_str().unwrap_or("*")),
    }
}

pub fn properties(fields: &Value) -> HashMap<String, String> {
    let given = fields["properties"].as_object().into_iter().flatten();
    given.map(|(key, value)| (key.clone(), text(value).to_string())).collect()
}

/// A message to send; the client knows times by whole seconds.
pub fn outgoing(topic: &str, fields: &Value, in_transaction: bool) -> Result<impl Message, Failure> {
    let body = BASE64_STANDARD.decode(text(&fields["body"])).map_err(|error| Failure::new("Base64", error))?;
    let mut builder = MessageBuilder::builder().set_topic(topic).set_body(body);
    builder = builder.set_keys(texts(&fields["keys"]).collect()).set_properties(properties(fields));
    if let Some(tag) = fields["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(group) = fields["messageGroup"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(at_ms) = fields["deliverAtMs"].as_i64() {
        builder = builder.set_delivery_timestamp(at_ms / 1000);
    }
    if in_transaction {
        builder = builder.enable_transaction();
    }
    Ok(builder.build()?)
}

pub fn view(message: &MessageView) -> Value {
    json!({
        "topic": message.topic(),
        "messageId": message.message_id(),
        "body": BASE64_STANDARD.encode(message.body()),
        "tag": message.tag(),
        "keys": message.keys(),
        "properties": message.properties(),
        "messageGroup": message.message_group(),
        "deliverAtMs": message.delivery_timestamp().map(|seconds| seconds * 1000),
        "bornHost": message.born_host(),
        "bornAtMs": message.born_timestamp() * 1000,
        "attempt": message.delivery_attempt(),
        "receivedAt": now_ms(),
    })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
