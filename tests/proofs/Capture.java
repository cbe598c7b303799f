import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import java.io.FileOutputStream;
import java.io.FileReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Debezium's engine: a line for each record, until a byte comes. Arguments: properties, file, milliseconds each. */
public class Capture {
    private static String text(Object value) {
        byte[] bytes = String.valueOf(value).getBytes(StandardCharsets.UTF_8);
        return value == null ? "-" : "+" + Base64.getEncoder().encodeToString(bytes);
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(args[0])) {
            properties.load(reader);
        }
        PrintStream out = new PrintStream(new FileOutputStream(args[1], true), true);
        long pause = Long.parseLong(args[2]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
            .create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
            .using(properties)
            .notifying((records, committer) -> {
                for (ChangeEvent<String, String> each : records) {
                    StringBuilder line = new StringBuilder(each.destination());
                    line.append(' ').append(text(each.key())).append(' ').append(text(each.value()));
                    for (Header<?> header : each.headers()) {
                        line.append(' ').append(header.getKey()).append('=').append(text(header.getValue()));
                    }
                    out.println(line);
                    committer.markProcessed(each);
                    Thread.sleep(pause);
                }
                committer.markBatchFinished();
            })
            .using((success, message, error) -> System.err.println("end: " + message + " " + error))
            .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        System.in.read();
        engine.close();
        thread.shutdown();
        thread.awaitTermination(20, TimeUnit.SECONDS);
    }
}
