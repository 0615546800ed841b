import java.io.*;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.hbase.util.*;

/** Values as HBase's own classes write them: a line `KIND VALUE` in, a line of hexadecimal out. */
public class Encode {
  public static void main(String[] args) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] word = line.split(" ", 2);
      out.println(Bytes.toHex(encode(word[0], word.length > 1 ? word[1] : "")));
      out.flush();
    }
  }

  static byte[] encode(String kind, String value) {
    switch (kind) {
      case "short": return Bytes.toBytes(Short.parseShort(value));
      case "int": return Bytes.toBytes(Integer.parseInt(value));
      case "long": return Bytes.toBytes(Long.parseLong(value));
      case "float": return Bytes.toBytes(Float.parseFloat(value));
      case "double": return Bytes.toBytes(Double.parseDouble(value));
      case "boolean": return Bytes.toBytes(Boolean.parseBoolean(value));
      case "decimal": return Bytes.toBytes(new BigDecimal(value));
      case "text": return Bytes.toBytes(text(value));
      default:
        PositionedByteRange range = new SimplePositionedMutableByteRange(1024);
        switch (kind) {
          case "ordered-int": OrderedBytes.encodeInt32(range, Integer.parseInt(value), Order.ASCENDING); break;
          case "ordered-long": OrderedBytes.encodeInt64(range, Long.parseLong(value), Order.ASCENDING); break;
          case "ordered-double": OrderedBytes.encodeFloat64(range, Double.parseDouble(value), Order.ASCENDING); break;
          case "ordered-text": OrderedBytes.encodeString(range, text(value), Order.ASCENDING); break;
          default: throw new IllegalArgumentException(kind);
        }
        return java.util.Arrays.copyOf(range.getBytes(), range.getPosition());
    }
  }

  /** Texts come as hexadecimal UTF-8. */
  static String text(String hex) {
    return new String(Bytes.fromHex(hex), StandardCharsets.UTF_8);
  }
}
