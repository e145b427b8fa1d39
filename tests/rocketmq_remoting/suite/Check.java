// What scenarios expect.

import java.util.Objects;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

final class Check {
  private static final long PATIENCE_MS = 45_000;

  private Check() {}

  static void that(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  static void equal(Object expected, Object found) {
    that(Objects.equals(expected, found), "expected " + expected + ", found " + found);
  }

  /** Waits until it holds. */
  static void soon(Callable<Boolean> holds, String what) throws Exception {
    long end = System.currentTimeMillis() + PATIENCE_MS;
    while (!holds.call()) {
      that(System.currentTimeMillis() < end, "not in time: " + what);
      Thread.sleep(20);
    }
  }

  /** The value as soon as the call does not throw. */
  static <T> T succeeds(Callable<T> call) throws Exception {
    long end = System.currentTimeMillis() + PATIENCE_MS;
    while (true) {
      try {
        return call.call();
      } catch (Exception error) {
        if (System.currentTimeMillis() > end) {
          throw error;
        }
        Thread.sleep(100);
      }
    }
  }

  static Exception refused(Callable<?> call) {
    Object found;
    try {
      found = call.call();
    } catch (Exception error) {
      return error;
    }
    throw new AssertionError("not refused: " + found);
  }

  /** By a broker, with this code of the protocol. */
  static void refusedWith(int code, Callable<?> call) {
    Exception error = refused(call);
    Throwable told = error;
    while (told != null) {
      if (told instanceof MQBrokerException && ((MQBrokerException) told).getResponseCode() == code
          || told instanceof MQClientException
              && ((MQClientException) told).getResponseCode() == code) {
        return;
      }
      told = told.getCause();
    }
    throw new AssertionError("expected code " + code + ", found " + error);
  }
}
