//! Apache's client for Rust, told what to do line by line; programs.py says in which words.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

type Anyhow<T> = Result<T, Box<dyn Error>>;

fn words(asked: &Value) -> Vec<String> {
    let each = asked.as_array().into_iter().flatten();
    each.filter_map(|one| one.as_str().map(str::to_string))
        .collect()
}

fn message(asked: &Value) -> Result<impl Message + use<>, ClientError> {
    let text = |name: &str| asked[name].as_str().map(str::to_string);
    let mut message = MessageBuilder::builder()
        .set_topic(text("topic").unwrap_or_default())
        .set_body(text("body").unwrap_or_default().into_bytes())
        .set_keys(words(&asked["keys"]));
    if let Some(tag) = text("tag") {
        message = message.set_tag(tag);
    }
    if let Some(properties) = asked["properties"].as_object() {
        let properties = properties.iter();
        let properties: HashMap<String, String> = properties
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_string()))
            .collect();
        message = message.set_properties(properties);
    }
    if let Some(group) = text("group") {
        message = message.set_message_group(group);
    }
    if let Some(delay_s) = asked["delay_s"].as_u64() {
        let at = SystemTime::now() + Duration::from_secs(delay_s);
        let at_s = at.duration_since(UNIX_EPOCH).expect("a clock").as_secs();
        message = message.set_delivery_timestamp(at_s as i64);
    }
    if asked["end"].is_string() {
        message = message.enable_transaction();
    }
    message.build()
}

async fn sent(producer: &Producer, asked: &Value) -> Result<Value, ClientError> {
    if let Some(end) = asked["end"].as_str() {
        let transaction = producer.send_transaction_message(message(asked)?).await?;
        let ids = json!({
            "id": transaction.message_id(),
            "transaction": transaction.transaction_id(),
        });
        match end {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => {}
        }
        return Ok(ids);
    }
    let Some(batch) = asked["messages"].as_array() else {
        let receipt = producer.send(message(asked)?).await?;
        return Ok(json!({
            "id": receipt.message_id(),
            "transaction": receipt.transaction_id(),
        }));
    };
    let mut messages = Vec::new();
    for one in batch {
        messages.push(message(one)?);
    }
    let receipts = producer.batch_send(messages).await?;
    let ids: Vec<&str> = receipts.iter().map(|one| one.message_id()).collect();
    Ok(json!({ "ids": ids }))
}

fn say(answer: Value) {
    println!("{answer}");
}

/// The next line that is not the last one.
async fn next(lines: &mut Lines<BufReader<Stdin>>) -> Anyhow<Option<Value>> {
    let Some(line) = lines.next_line().await? else {
        return Ok(None);
    };
    let asked: Value = serde_json::from_str(&line)?;
    Ok(if asked["do"] == "stop" {
        None
    } else {
        Some(asked)
    })
}

fn check(_: String, message: MessageView) -> TransactionResolution {
    match message.properties().get("answer").map(String::as_str) {
        Some("commit") => TransactionResolution::COMMIT,
        Some("rollback") => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

async fn produce(option: ClientOption, topics: Vec<String>) -> Anyhow<()> {
    let mut producer_option = ProducerOption::default();
    producer_option.set_topics(topics);
    let mut producer =
        Producer::new_transaction_producer(producer_option, option, Box::new(check))?;
    producer.start().await?;
    say(json!({"started": true}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(asked) = next(&mut lines).await? {
        let answer = sent(&producer, &asked).await;
        say(answer.unwrap_or_else(|error| json!({"error": error.to_string()})));
    }
    producer.shutdown().await?;
    Ok(())
}

fn seen(message: &MessageView) -> Value {
    json!({
        "id": message.message_id(),
        "topic": message.topic(),
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag(),
        "keys": message.keys(),
        "properties": message.properties(),
        "group": message.message_group(),
        "attempt": message.delivery_attempt(),
    })
}

/// Several topics take turns, as other clients have it by themselves.
struct Receiving {
    consumer: SimpleConsumer,
    subscription: Vec<(String, FilterExpression)>,
    turn: usize,
    held: HashMap<String, MessageView>,
}

impl Receiving {
    async fn answer(&mut self, asked: &Value) -> Result<Value, ClientError> {
        if asked["do"] == "ack" {
            let id = asked["id"].as_str().unwrap_or_default();
            self.consumer.ack(&self.held[id]).await?;
            return Ok(json!({ "id": id }));
        }
        let (topic, expression) = &self.subscription[self.turn % self.subscription.len()];
        self.turn += 1;
        let most = asked["max"].as_i64().unwrap_or_default() as i32;
        let invisible = Duration::from_secs(asked["invisible_s"].as_u64().unwrap_or_default());
        let found = self
            .consumer
            .receive_with(topic, expression, most, invisible);
        let found = found.await?;
        let messages: Vec<Value> = found.iter().map(seen).collect();
        self.held.extend(
            found
                .into_iter()
                .map(|one| (one.message_id().to_string(), one)),
        );
        Ok(json!({ "messages": messages }))
    }
}

async fn receive(option: ClientOption, group: &str, topics: &[String]) -> Anyhow<()> {
    let pairs = topics
        .iter()
        .map(|one| one.split_once('=').unwrap_or((one.as_str(), "*")));
    let subscription: Vec<(String, FilterExpression)> = pairs
        .map(|(topic, tags)| {
            let filter = match tags.strip_prefix("sql:") {
                Some(condition) => FilterExpression::new(FilterType::Sql, condition),
                None => FilterExpression::new(FilterType::Tag, tags),
            };
            (topic.to_string(), filter)
        })
        .collect();
    let mut consumer_option = SimpleConsumerOption::default();
    consumer_option.set_consumer_group(group);
    consumer_option.set_topics(subscription.iter().map(|(topic, _)| topic).collect());
    let mut consumer = SimpleConsumer::new(consumer_option, option)?;
    consumer.start().await?;
    say(json!({"started": true}));
    let held = HashMap::new();
    let mut receiving = Receiving {
        consumer,
        subscription,
        turn: 0,
        held,
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(asked) = next(&mut lines).await? {
        let answer = receiving.answer(&asked).await;
        say(answer.unwrap_or_else(|error| json!({"error": error.to_string()})));
    }
    receiving.consumer.shutdown().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Anyhow<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut option = ClientOption::default();
    option.set_access_url(&arguments[1]);
    option.set_enable_tls(false);
    if let Ok(key) = std::env::var("TEST_ACCESS_KEY") {
        option.set_access_key(key);
        option.set_secret_key(std::env::var("TEST_SECRET_KEY")?);
    }
    match arguments[0].as_str() {
        "producer" => produce(option, arguments[2..].to_vec()).await?,
        "simple" => receive(option, &arguments[2], &arguments[3..]).await?,
        role => return Err(format!("no {role} in this client").into()),
    }
    say(json!({"stopped": true}));
    Ok(())
}
