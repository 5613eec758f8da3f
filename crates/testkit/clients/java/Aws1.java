import com.amazonaws.auth.AWSCredentialsProvider;
import com.amazonaws.auth.AWSSessionCredentials;
import com.amazonaws.auth.DefaultAWSCredentialsProviderChain;
import com.amazonaws.regions.InstanceMetadataRegionProvider;
import java.util.Map;

/** What the SDK for Java, version 1, is asked. */
final class Aws1 {
  static final Map<String, Client.Question> QUESTIONS =
      Map.of(
          "credentials", word -> credentials(),
          "times", Aws1::times,
          "region", word -> new InstanceMetadataRegionProvider().getRegion());

  /** One for the life of the program, as a server has it. */
  private static final AWSCredentialsProvider PROVIDER = DefaultAWSCredentialsProviderChain.getInstance();

  private static String credentials() {
    AWSSessionCredentials found = (AWSSessionCredentials) PROVIDER.getCredentials();
    return found.getAWSAccessKeyId() + " " + found.getSessionToken();
  }

  /** So many calls to AWS in a row need credentials. */
  private static String times(String count) {
    for (int call = 0; call < Integer.parseInt(count); call++) {
      credentials();
    }
    return count;
  }
}
