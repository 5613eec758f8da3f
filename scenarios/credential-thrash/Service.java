import com.amazonaws.DefaultRequest;
import com.amazonaws.auth.AWS4Signer;
import com.amazonaws.auth.AWSCredentials;
import com.amazonaws.auth.AWSCredentialsProvider;
import com.amazonaws.auth.DefaultAWSCredentialsProviderChain;
import com.amazonaws.http.HttpMethodName;
import com.amazonaws.util.SdkHttpUtils;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;

/**
 * A service as many are: each request makes one call to AWS, signed with what the SDK's default provider gives. The call is STS's
 * GetCallerIdentity, which says whose the credentials are; anything but the role that the service should have is an error.
 *
 * <p>Arguments: STS's URL, the role's name. {@code GET /waits} says how long each request so far waited for its credentials, in microseconds.
 */
public final class Service {
  /** One for the life of the program, at its defaults: 169.254.169.254, no variable, no property. */
  private static final AWSCredentialsProvider CREDENTIALS = DefaultAWSCredentialsProviderChain.getInstance();

  private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  /** Of each request, in microseconds. */
  private static final List<Long> WAITS = new ArrayList<>();

  private static AWSCredentials credentials() {
    long begun = System.nanoTime();
    AWSCredentials found = CREDENTIALS.getCredentials();
    synchronized (WAITS) {
      WAITS.add((System.nanoTime() - begun) / 1000);
    }
    return found;
  }

  /** What STS says of who asks. */
  private static String identity(URI sts) throws IOException, InterruptedException {
    DefaultRequest<Void> call = new DefaultRequest<>("sts");
    call.setHttpMethod(HttpMethodName.POST);
    call.setEndpoint(sts);
    call.setResourcePath("/");
    call.addParameter("Action", "GetCallerIdentity");
    call.addParameter("Version", "2011-06-15");
    call.addHeader("Content-Type", "application/x-www-form-urlencoded");
    AWS4Signer signer = new AWS4Signer();
    signer.setServiceName("sts");
    signer.setRegionName("eu-west-1");
    signer.sign(call, credentials());
    HttpRequest.Builder request =
        HttpRequest.newBuilder(sts).POST(HttpRequest.BodyPublishers.ofString(SdkHttpUtils.encodeParameters(call)));
    for (Map.Entry<String, String> header : call.getHeaders().entrySet()) {
      // The client writes the same one, and lets nobody else do it.
      if (!header.getKey().equalsIgnoreCase("Host")) {
        request.header(header.getKey(), header.getValue());
      }
    }
    return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString()).body();
  }

  private static void answer(HttpExchange exchange, int status, String text) throws IOException {
    byte[] body = text.getBytes();
    exchange.sendResponseHeaders(status, body.length);
    exchange.getResponseBody().write(body);
    exchange.close();
  }

  private static void serve(HttpExchange exchange, URI sts, String role) throws IOException {
    try {
      String identity = identity(sts);
      boolean isRole = identity.contains(":assumed-role/" + role + "/");
      answer(exchange, isRole ? 200 : 502, identity);
    } catch (RuntimeException | IOException | InterruptedException error) {
      answer(exchange, 500, error.toString());
    }
  }

  public static void main(String[] arguments) throws IOException {
    URI sts = URI.create(arguments[0]);
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 1024);
    // As many threads as requests: what they wait for is the SDK's own lock, and no queue of this program.
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/", exchange -> serve(exchange, sts, arguments[1]));
    server.createContext(
        "/waits",
        exchange -> {
          synchronized (WAITS) {
            answer(exchange, 200, WAITS.toString());
          }
        });
    server.start();
  }
}
