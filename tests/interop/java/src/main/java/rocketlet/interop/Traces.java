package rocketlet.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;

/** The official reader of trace messages. */
final class Traces {
    @Command("trace.decode")
    Object decode(Arguments arguments) {
        List<Object> records = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(arguments.text("text"))) {
            for (TraceBean bean : context.getTraceBeans()) {
                records.add(describe(context, bean));
            }
        }
        return Map.of("records", records);
    }

    private static Map<String, Object> describe(TraceContext context, TraceBean bean) {
        Map<String, Object> record = new TreeMap<>();
        record.put("type", context.getTraceType().name());
        record.put("group", context.getGroupName());
        record.put("region", context.getRegionId());
        record.put("requestId", context.getRequestId());
        record.put("succeeded", context.isSuccess());
        record.put("end", context.getContextCode());
        record.put("topic", bean.getTopic());
        record.put("msgId", bean.getMsgId());
        record.put("keys", bean.getKeys());
        record.put("tags", bean.getTags());
        record.put("storeHost", bean.getStoreHost());
        record.put("retries", bean.getRetryTimes());
        record.put("kind", bean.getMsgType() == null ? null : bean.getMsgType().name());
        record.put("state", bean.getTransactionState() == null ? null : bean.getTransactionState().name());
        return record;
    }
}
