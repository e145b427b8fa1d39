//! tonic as a client of aerobee.rpc.core's server: the cases, one line each. Messages are bytes;
//! the methods are those of tests/support/grpc_core_server.py.
//!
//!     interop ADDRESS [CA CERTIFICATE KEY]

use std::future::Future;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};

const MIB: usize = 1 << 20;

type Outcome<T = ()> = Result<T, String>;

#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

fn path(name: &str) -> PathAndQuery {
    PathAndQuery::try_from(format!("/test.Echo/{name}")).expect("a path")
}

fn expect(is: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if is { Ok(()) } else { Err(otherwise()) }
}

fn told(status: Status) -> String {
    status.to_string()
}

fn text(number: usize) -> Bytes {
    Bytes::from(number.to_string())
}

fn patient<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(60));
    request
}

#[derive(Clone)]
struct Client {
    channel: Channel,
}

impl Client {
    async fn grpc(&self) -> Outcome<Grpc<Channel>> {
        let mut grpc = Grpc::new(self.channel.clone())
            .max_decoding_message_size(32 * MIB)
            .max_encoding_message_size(32 * MIB)
            .accept_compressed(CompressionEncoding::Gzip);
        grpc.ready().await.map_err(|error| error.to_string())?;
        Ok(grpc)
    }

    async fn try_call(&self, name: &str, request: Request<Bytes>) -> Outcome<Result<Bytes, Status>> {
        let answer = self.grpc().await?.unary(request, path(name), Raw).await;
        Ok(answer.map(tonic::Response::into_inner))
    }

    async fn call(&self, name: &str, request: impl Into<Bytes>) -> Outcome<Bytes> {
        self.try_call(name, patient(request.into())).await?.map_err(told)
    }

    async fn answers(&self, name: &str, request: &'static str) -> Outcome<Streaming<Bytes>> {
        let request = patient(Bytes::from_static(request.as_bytes()));
        let answers = self.grpc().await?.server_streaming(request, path(name), Raw).await;
        Ok(answers.map_err(told)?.into_inner())
    }

    /// tonic waits for the head of the answer, which comes with the first message of it.
    async fn chat(&self, first: Bytes) -> Outcome<(mpsc::Sender<Bytes>, Streaming<Bytes>)> {
        let (sender, requests) = mpsc::channel(1);
        sender.send(first.clone()).await.map_err(|error| error.to_string())?;
        let request = patient(ReceiverStream::new(requests));
        let answers = self.grpc().await?.streaming(request, path("Chat"), Raw).await;
        let mut answers = answers.map_err(told)?.into_inner();
        answered(&mut answers, first).await?;
        Ok((sender, answers))
    }

    async fn sizes(self) -> Outcome {
        for name in ["Echo", "Later", "Task"] {
            for size in [0, 1, 16_379, 16_380, 70_000, 5 * MIB] {
                let request = Bytes::from(vec![b'x'; size]);
                let answer = self.call(name, request.clone()).await?;
                expect(answer == request, || format!("{name} of {size} bytes"))?;
            }
        }
        Ok(())
    }

    async fn large_answers(self) -> Outcome {
        together(8, |_| {
            let client = self.clone();
            async move {
                let answer = client.call("Large", "3000000").await?;
                expect(answer.len() == 3_000_000, || "it is not whole".into())
            }
        })
        .await
    }

    async fn many_calls(self) -> Outcome {
        together(5_000, |number| {
            let client = self.clone();
            async move {
                let answer = client.call("Task", text(number)).await?;
                expect(answer == text(number), || format!("{number} came back as {answer:?}"))
            }
        })
        .await
    }

    /// 2,000 streams open at once.
    async fn many_streams(self) -> Outcome {
        let open = std::sync::Arc::new(tokio::sync::Barrier::new(2_000));
        together(2_000, |number| {
            let client = self.clone();
            let open = open.clone();
            async move {
                let (sender, mut answers) = client.chat(text(number)).await?;
                open.wait().await;
                turn(&sender, &mut answers, Bytes::from_static(b"again")).await?;
                drop(sender);
                ended(&mut answers).await
            }
        })
        .await
    }

    async fn counts(&self, request: &'static str, count: usize, size: usize) -> Outcome {
        let mut answers = self.answers("Count", request).await?;
        if size > 10_000 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.call("Echo", "meanwhile").await?;
        }
        let rest = "x".repeat(size);
        for number in 0..count {
            let answer = answers.message().await.map_err(told)?;
            let whole = format!("{number}{rest}");
            expect(answer.is_some_and(|one| one == whole), || format!("answer {number}"))?;
        }
        ended(&mut answers).await
    }

    async fn stream_of_answers(self) -> Outcome {
        self.counts("0", 0, 0).await?;
        self.counts("1000,500", 1_000, 500).await
    }

    async fn slow_reader(self) -> Outcome {
        self.counts("400,20000", 400, 20_000).await
    }

    async fn stream_of_requests(self) -> Outcome {
        let requests = tokio_stream::iter((0..300).map(|size| Bytes::from(vec![b'x'; size])));
        let mut grpc = self.grpc().await?;
        let answer = grpc.client_streaming(patient(requests), path("Sum"), Raw).await;
        let total = answer.map_err(told)?.into_inner();
        expect(total == "44850", || format!("the sum is {total:?}"))
    }

    async fn both_stream(self) -> Outcome {
        let (sender, mut answers) = self.chat(text(0)).await?;
        for number in 1..200 {
            turn(&sender, &mut answers, text(number)).await?;
        }
        drop(sender);
        ended(&mut answers).await
    }

    async fn gzip(self) -> Outcome {
        for size in [10, 100_000] {
            let request = Bytes::from(vec![b'x'; size]);
            let mut grpc = self.grpc().await?.send_compressed(CompressionEncoding::Gzip);
            let answer = grpc.unary(patient(request.clone()), path("Squeezed"), Raw).await;
            let answer = answer.map_err(told)?.into_inner();
            expect(answer == request, || format!("{size} bytes"))?;
        }
        Ok(())
    }

    async fn errors(self) -> Outcome {
        let Err(status) = self.try_call("Fail", patient(Bytes::new())).await? else {
            return Err("it was answered".into());
        };
        let says = status.to_string();
        expect(status.code() == Code::FailedPrecondition, || says.clone())?;
        expect(status.message() == "nicht möglich: 100 %\n", || says.clone())?;
        let details = status.details();
        expect(details.windows(6).any(|part| part == b"BROKEN"), || says.clone())?;
        let reason = status.metadata().get("reason").map(|value| value.as_bytes());
        expect(reason == Some(b"broken"), || says.clone())?;
        let raw = status.metadata().get_bin("reason-bin");
        let raw = raw.and_then(|value| value.to_bytes().ok());
        expect(raw.is_some_and(|value| value == b"\x00\xff".as_slice()), || says)
    }

    async fn metadata(self) -> Outcome {
        let mut request = patient(Bytes::new());
        let sent = request.metadata_mut();
        sent.append("key", MetadataValue::from_static("a value, with a comma"));
        sent.append("key", MetadataValue::from_static("once more"));
        sent.append_bin("raw-bin", MetadataValue::from_bytes(b"\x00\x01\xff"));
        let answer = self.grpc().await?.unary(request, path("Metadata"), Raw).await;
        // What came before the answer, and its trailers: tonic has both in one map.
        let answer = answer.map_err(told)?;
        let given = answer.metadata();
        let keys: Vec<_> = given.get_all("key").iter().map(|value| value.as_bytes()).collect();
        let wanted: [&[u8]; 2] = [b"a value, with a comma", b"once more"];
        expect(keys.chunks(2).all(|two| two == wanted) && keys.len() >= 2, || format!("{given:?}"))?;
        let raw = given.get_bin("raw-bin").and_then(|value| value.to_bytes().ok());
        let is = raw.is_some_and(|value| value == b"\x00\x01\xff".as_slice());
        expect(is && given.get_bin("count-bin").is_some(), || format!("{given:?}"))
    }

    async fn unimplemented(self) -> Outcome {
        self.fails("Nothing", Duration::from_secs(60), Code::Unimplemented).await
    }

    async fn fails(&self, name: &str, timeout: Duration, code: Code) -> Outcome {
        let mut request = Request::new(Bytes::new());
        request.set_timeout(timeout);
        let answer = self.try_call(name, request).await?;
        let status = answer.err().ok_or_else(|| format!("{name} was answered"))?;
        expect(status.code() == code, || told(status))
    }

    async fn deadline(self) -> Outcome {
        for name in ["Sleep", "Never"] {
            // tonic's own timer says CANCELLED, and the server's word is DEADLINE_EXCEEDED:
            // whichever is first.
            let timeout = Duration::from_millis(200);
            let late = self.fails(name, timeout, Code::DeadlineExceeded).await;
            if late.is_err() {
                self.fails(name, timeout, Code::Cancelled).await?;
            }
        }
        Ok(())
    }

    async fn cancel(self) -> Outcome {
        let mut answers = self.answers("Forever", "").await?;
        for _ in 0..10 {
            let answer = answers.message().await.map_err(told)?;
            expect(answer.is_some_and(|one| one.len() == 10_000), || "not whole".into())?;
        }
        drop(answers); // which is how tonic cancels
        self.call("Echo", "").await.map(drop)
    }

    async fn cancelled_by_server(self) -> Outcome {
        let mut answers = self.answers("CountAndCancel", "3").await?;
        let mut count = 0;
        loop {
            match answers.message().await {
                Ok(Some(_)) => count += 1,
                Ok(None) => return Err("it ended well".into()),
                Err(status) => {
                    let is = count == 3 && status.code() == Code::Cancelled;
                    return expect(is, || format!("after {count}: {status}"));
                }
            }
        }
    }
}

async fn turn(sender: &mpsc::Sender<Bytes>, answers: &mut Streaming<Bytes>, one: Bytes) -> Outcome {
    sender.send(one.clone()).await.map_err(|error| error.to_string())?;
    answered(answers, one).await
}

async fn answered(answers: &mut Streaming<Bytes>, one: Bytes) -> Outcome {
    let answer = answers.message().await.map_err(told)?;
    expect(answer.as_ref() == Some(&one), || format!("{one:?} came back as {answer:?}"))
}

async fn ended(answers: &mut Streaming<Bytes>) -> Outcome {
    let more = answers.next().await;
    expect(more.is_none(), || format!("{more:?} came after the last answer"))
}

/// So many at once; the first error.
async fn together<F>(count: usize, one: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|number| tokio::spawn(one(number))).collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn endpoint(address: &str, files: &[String]) -> Endpoint {
    let read = |file: &String| std::fs::read(file).expect("a readable file");
    let [authority, certificate, key] = files else {
        return Endpoint::from_shared(format!("http://{address}")).expect("an address");
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(authority)))
        .identity(Identity::from_pem(read(certificate), read(key)))
        .domain_name("localhost");
    Endpoint::from_shared(format!("https://{address}"))
        .and_then(|endpoint| endpoint.tls_config(tls))
        .expect("an address and certificates")
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let channel = endpoint(&arguments[0], &arguments[1..]).connect_lazy();
    let client = Client { channel };
    let mut failed = false;
    macro_rules! run {
        ($($name:ident),*) => {$(
            match client.clone().$name().await {
                Ok(()) => println!("ok {}", stringify!($name)),
                Err(why) => {
                    failed = true;
                    println!("failed {}: {}", stringify!($name), why.replace('\n', " "));
                }
            }
        )*};
    }
    run!(
        sizes, large_answers, many_calls, many_streams, stream_of_answers, stream_of_requests,
        both_stream, slow_reader, gzip, errors, metadata, unimplemented, deadline, cancel,
        cancelled_by_server
    );
    std::process::exit(i32::from(failed));
}
