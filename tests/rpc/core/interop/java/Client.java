import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * grpc-java as a client of aerobee.grpc_core's server: the cases, one line each. Messages are bytes;
 * the methods are those of tests/support/grpc_core_server.py.
 *
 * <pre>Client ADDRESS [CA CERTIFICATE KEY]</pre>
 */
final class Client {
  private static final int MIB = 1 << 20;
  private static final Metadata.Key<String> KEY =
      Metadata.Key.of("key", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<byte[]> RAW =
      Metadata.Key.of("raw-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final ManagedChannel channel;

  private Client(ManagedChannel channel) {
    this.channel = channel;
  }

  private interface Case {
    void run() throws Exception;
  }

  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  /** What a streaming call has received, one after the other; its end is a status. */
  private static final class Received implements StreamObserver<byte[]> {
    final BlockingQueue<Object> all = new LinkedBlockingQueue<>();

    @Override
    public void onNext(byte[] answer) {
      all.add(answer);
    }

    @Override
    public void onError(Throwable error) {
      all.add(Status.fromThrowable(error));
    }

    @Override
    public void onCompleted() {
      all.add(Status.OK);
    }

    Object next() throws InterruptedException {
      Object next = all.poll(60, TimeUnit.SECONDS);
      expect(next != null, "nothing came for a minute");
      return next;
    }

    void expectText(String text) throws InterruptedException {
      Object next = next();
      expect(next instanceof byte[] answer && new String(answer).equals(text), "got " + next);
    }
  }

  private static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(type)
        .setFullMethodName("test.Echo/" + name)
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(new Bytes())
        .build();
  }

  private static CallOptions patience() {
    return CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS);
  }

  private static void expect(boolean is, String otherwise) {
    if (!is) {
      throw new AssertionError(otherwise);
    }
  }

  private static byte[] filled(int size) {
    byte[] bytes = new byte[size];
    Arrays.fill(bytes, (byte) 'x');
    return bytes;
  }

  private byte[] call(String name, byte[] request, CallOptions options) {
    return ClientCalls.blockingUnaryCall(channel, method(name, MethodType.UNARY), options, request);
  }

  private byte[] call(String name, String request) {
    return call(name, request.getBytes(), patience());
  }

  private Iterator<byte[]> answers(String name, String request) {
    return ClientCalls.blockingServerStreamingCall(
        channel, method(name, MethodType.SERVER_STREAMING), patience(), request.getBytes());
  }

  private Future<byte[]> start(String name, String request) {
    ClientCall<byte[], byte[]> call = channel.newCall(method(name, MethodType.UNARY), patience());
    return ClientCalls.futureUnaryCall(call, request.getBytes());
  }

  private StreamObserver<byte[]> chat(Received received) {
    ClientCall<byte[], byte[]> call =
        channel.newCall(method("Chat", MethodType.BIDI_STREAMING), patience());
    return ClientCalls.asyncBidiStreamingCall(call, received);
  }

  private Status failure(String name, CallOptions options) {
    try {
      call(name, new byte[0], options);
    } catch (StatusRuntimeException error) {
      return error.getStatus();
    }
    throw new AssertionError(name + " was answered");
  }

  private void sizes() {
    for (String name : List.of("Echo", "Later", "Task")) {
      for (int size : List.of(0, 1, 16_379, 16_380, 70_000, 5 * MIB)) {
        byte[] request = filled(size);
        byte[] answer = call(name, request, patience());
        expect(Arrays.equals(answer, request), name + " of " + size + " bytes");
      }
    }
  }

  private void largeAnswers() throws Exception {
    List<Future<byte[]>> calls = new ArrayList<>();
    for (int number = 0; number < 8; number++) {
      calls.add(start("Large", "3000000"));
    }
    for (Future<byte[]> call : calls) {
      expect(call.get().length == 3_000_000, "it is not whole");
    }
  }

  private void manyCalls() throws Exception {
    List<Future<byte[]>> calls = new ArrayList<>();
    for (int number = 0; number < 5_000; number++) {
      calls.add(start("Task", String.valueOf(number)));
    }
    for (int number = 0; number < 5_000; number++) {
      expect(new String(calls.get(number).get()).equals(String.valueOf(number)), "mixed up");
    }
  }

  /** 2,000 streams open at once. */
  private void manyStreams() throws Exception {
    Map<Received, StreamObserver<byte[]>> calls = new LinkedHashMap<>();
    for (int number = 0; number < 2_000; number++) {
      Received received = new Received();
      calls.put(received, chat(received));
    }
    for (String text : List.of("once", "again")) {
      calls.values().forEach(call -> call.onNext(text.getBytes()));
      for (Received received : calls.keySet()) {
        received.expectText(text);
      }
    }
    calls.values().forEach(StreamObserver::onCompleted);
    for (Received received : calls.keySet()) {
      expect(received.next() == Status.OK, "it did not end well");
    }
  }

  private void counts(String request, int count, int size, Case beforeReading) throws Exception {
    Iterator<byte[]> answers = answers("Count", request);
    String rest = new String(filled(size));
    int number = 0;
    while (answers.hasNext()) {
      if (number == 1) {
        beforeReading.run();
      }
      expect(new String(answers.next()).equals(number + rest), "answer " + number + " is wrong");
      number++;
    }
    expect(number == count, number + " answers");
  }

  private void streamOfAnswers() throws Exception {
    counts("0", 0, 0, () -> {});
    counts("1000,500", 1_000, 500, () -> {});
  }

  private void slowReader() throws Exception {
    counts("400,20000", 400, 20_000, () -> {
      Thread.sleep(300);
      call("Echo", "meanwhile");
    });
  }

  private void streamOfRequests() throws Exception {
    Received received = new Received();
    StreamObserver<byte[]> call =
        ClientCalls.asyncClientStreamingCall(
            channel.newCall(method("Sum", MethodType.CLIENT_STREAMING), patience()), received);
    for (int size = 0; size < 300; size++) {
      call.onNext(filled(size));
    }
    call.onCompleted();
    received.expectText("44850");
    expect(received.next() == Status.OK, "it did not end well");
  }

  private void bothStream() throws Exception {
    Received received = new Received();
    StreamObserver<byte[]> call = chat(received);
    for (int number = 0; number < 200; number++) {
      call.onNext(String.valueOf(number).getBytes());
      received.expectText(String.valueOf(number));
    }
    call.onCompleted();
    expect(received.next() == Status.OK, "it did not end well");
  }

  private void gzip() {
    for (int size : List.of(10, 100_000)) {
      byte[] request = filled(size);
      byte[] answer = call("Squeezed", request, patience().withCompression("gzip"));
      expect(Arrays.equals(answer, request), size + " bytes");
    }
  }

  private void errors() {
    try {
      call("Fail", "");
    } catch (StatusRuntimeException error) {
      Status status = error.getStatus();
      Metadata trailers = error.getTrailers();
      expect(status.getCode() == Status.Code.FAILED_PRECONDITION, "it says " + status);
      expect("nicht möglich: 100 %\n".equals(status.getDescription()), "it says " + status);
      Metadata.Key<String> reason = Metadata.Key.of("reason", Metadata.ASCII_STRING_MARSHALLER);
      expect("broken".equals(trailers.get(reason)), "trailers: " + trailers);
      byte[] raw = trailers.get(Metadata.Key.of("reason-bin", Metadata.BINARY_BYTE_MARSHALLER));
      expect(Arrays.equals(raw, new byte[] {0, (byte) 255}), "trailers: " + trailers);
      byte[] details =
          trailers.get(
              Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER));
      expect(new String(details).contains("BROKEN"), "trailers: " + trailers);
      return;
    }
    throw new AssertionError("it was answered");
  }

  private void metadata() {
    Metadata sent = new Metadata();
    sent.put(KEY, "a value, with a comma");
    sent.put(KEY, "once more");
    sent.put(RAW, new byte[] {0, 1, (byte) 255});
    AtomicReference<Metadata> head = new AtomicReference<>();
    AtomicReference<Metadata> trailers = new AtomicReference<>();
    ClientCalls.blockingUnaryCall(
        ClientInterceptors.intercept(
            channel,
            MetadataUtils.newAttachHeadersInterceptor(sent),
            MetadataUtils.newCaptureMetadataInterceptor(head, trailers)),
        method("Metadata", MethodType.UNARY),
        patience(),
        new byte[0]);
    for (Metadata given : List.of(head.get(), trailers.get())) {
      List<String> keys = new ArrayList<>();
      given.getAll(KEY).forEach(keys::add);
      expect(keys.equals(List.of("a value, with a comma", "once more")), "got " + given);
      expect(Arrays.equals(given.get(RAW), new byte[] {0, 1, (byte) 255}), "got " + given);
    }
  }

  private void unimplemented() {
    Status status = failure("Nothing", patience());
    expect(status.getCode() == Status.Code.UNIMPLEMENTED, "it says " + status);
  }

  private void deadline() {
    for (String name : List.of("Sleep", "Never")) {
      Status status =
          failure(name, CallOptions.DEFAULT.withDeadlineAfter(200, TimeUnit.MILLISECONDS));
      expect(status.getCode() == Status.Code.DEADLINE_EXCEEDED, "it says " + status);
    }
  }

  private void cancel() throws Exception {
    BlockingClientCall<byte[], byte[]> call =
        ClientCalls.blockingV2ServerStreamingCall(
            channel, method("Forever", MethodType.SERVER_STREAMING), patience(), new byte[0]);
    for (int number = 0; number < 10; number++) {
      expect(call.read().length == 10_000, "it is not whole");
    }
    call.cancel("enough", null);
    try {
      while (call.read() != null) {
        // what had come before
      }
      throw new AssertionError("it ended well");
    } catch (StatusException error) {
      expect(error.getStatus().getCode() == Status.Code.CANCELLED, "it says " + error);
    }
    call("Echo", "");
  }

  private void cancelledByServer() {
    Iterator<byte[]> answers = answers("CountAndCancel", "3");
    int count = 0;
    try {
      while (answers.hasNext()) {
        answers.next();
        count++;
      }
      throw new AssertionError("it ended well");
    } catch (StatusRuntimeException error) {
      boolean is = count == 3 && error.getStatus().getCode() == Status.Code.CANCELLED;
      expect(is, "after " + count + ": " + error);
    }
  }

  private boolean passes(String name, Case one) {
    try {
      one.run();
      System.out.println("ok " + name);
      return true;
    } catch (Exception | AssertionError error) {
      System.out.println("failed " + name + ": " + error);
      return false;
    }
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel =
        (arguments.length == 1
                ? Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create())
                : Grpc.newChannelBuilder(
                        arguments[0],
                        TlsChannelCredentials.newBuilder()
                            .trustManager(new File(arguments[1]))
                            .keyManager(new File(arguments[2]), new File(arguments[3]))
                            .build())
                    .overrideAuthority("localhost"))
            .maxInboundMessageSize(32 * MIB)
            .build();
    Client client = new Client(channel);
    Map<String, Case> cases = new LinkedHashMap<>();
    cases.put("sizes", client::sizes);
    cases.put("large_answers", client::largeAnswers);
    cases.put("many_calls", client::manyCalls);
    cases.put("many_streams", client::manyStreams);
    cases.put("stream_of_answers", client::streamOfAnswers);
    cases.put("stream_of_requests", client::streamOfRequests);
    cases.put("both_stream", client::bothStream);
    cases.put("slow_reader", client::slowReader);
    cases.put("gzip", client::gzip);
    cases.put("errors", client::errors);
    cases.put("metadata", client::metadata);
    cases.put("unimplemented", client::unimplemented);
    cases.put("deadline", client::deadline);
    cases.put("cancel", client::cancel);
    cases.put("cancelled_by_server", client::cancelledByServer);
    boolean isGood = true;
    for (Map.Entry<String, Case> one : cases.entrySet()) {
      isGood &= client.passes(one.getKey(), one.getValue());
    }
    channel.shutdownNow();
    System.exit(isGood ? 0 : 1);
  }
}
