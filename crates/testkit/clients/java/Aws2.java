import java.util.Map;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider;
import software.amazon.awssdk.regions.providers.InstanceProfileRegionProvider;

/** What the SDK for Java, version 2, is asked. */
final class Aws2 {
  static final Map<String, Client.Question> QUESTIONS =
      Map.of(
          "credentials", word -> credentials(),
          "region", word -> new InstanceProfileRegionProvider().getRegion().id());

  /** One for the life of the program, as a server has it. */
  private static final AwsCredentialsProvider PROVIDER = DefaultCredentialsProvider.builder().build();

  private static String credentials() {
    AwsSessionCredentials found = (AwsSessionCredentials) PROVIDER.resolveCredentials();
    return found.accessKeyId() + " " + found.sessionToken();
  }
}
