//! Apache's client for Rust, told what to do line by line; programs.py says in which words.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::Producer;
use rocketmq::conf::{ClientOption, ProducerOption};
use rocketmq::error::ClientError;
use rocketmq::model::message::{Message, MessageBuilder};
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
    message.build()
}

async fn sent(producer: &Producer, asked: &Value) -> Result<Value, ClientError> {
    let Some(bodies) = asked["bodies"].as_array() else {
        let receipt = producer.send(message(asked)?).await?;
        return Ok(json!({
            "id": receipt.message_id(),
            "transaction": receipt.transaction_id(),
        }));
    };
    let mut messages = Vec::new();
    for body in bodies {
        messages.push(message(&json!({"topic": asked["topic"], "body": body}))?);
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

async fn produce(option: ClientOption, topics: Vec<String>) -> Anyhow<()> {
    let mut producer_option = ProducerOption::default();
    producer_option.set_topics(topics);
    let mut producer = Producer::new(producer_option, option)?;
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

#[tokio::main]
async fn main() -> Anyhow<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut option = ClientOption::default();
    option.set_access_url(&arguments[1]);
    option.set_enable_tls(false);
    produce(option, arguments[2..].to_vec()).await?;
    say(json!({"stopped": true}));
    Ok(())
}
