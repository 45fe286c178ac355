import gov.aps.jca.*;
import gov.aps.jca.dbr.*;
import gov.aps.jca.event.*;
import java.lang.reflect.Array;
import java.util.*;
import java.util.concurrent.*;

/** What an operator's display does with its channels; all that it sees goes to standard output, stamps aside. */
public class Display {
    static final long PATIENCE_S = 120;

    /** One channel with its two subscriptions, as displays open them: values and alarms, and properties. */
    static class Pv implements ConnectionListener, AccessRightsListener, MonitorListener {
        final String name;
        final Channel channel;
        final BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        final BlockingQueue<String> links = new LinkedBlockingQueue<>();

        Pv(Context context, String name) throws Exception {
            this.name = name;
            channel = context.createChannel(name, this, Channel.PRIORITY_OPI);
        }

        public void connectionChanged(ConnectionEvent event) {
            links.add(event.isConnected() ? "connected" : "disconnected");
        }

        public void accessRightsChanged(AccessRightsEvent event) {
            links.add("read " + event.getReadAccess() + " write " + event.getWriteAccess());
        }

        public void monitorChanged(MonitorEvent event) {
            seen.add(event.getStatus().getName() + " " + shown(event.getDBR()));
        }

        void expect(BlockingQueue<String> queue, String until) throws Exception {
            while (true) {
                String text = queue.poll(PATIENCE_S, TimeUnit.SECONDS);
                System.out.println("  " + name + ": " + text);
                if (text == null) {
                    throw new IllegalStateException(name + " never saw " + until);
                }
                if (text.contains(until)) {
                    return;
                }
            }
        }
    }

    static String list(Object values) {
        StringJoiner text = new StringJoiner(", ", "[", "]");
        for (int i = 0; i < Array.getLength(values); i++) {
            text.add(String.valueOf(Array.get(values, i)));
        }
        return text.toString();
    }

    /** A value with all that comes with it. */
    static String shown(DBR dbr) {
        if (dbr == null) {
            return "nothing";
        }
        StringBuilder text = new StringBuilder(dbr.getType().getName() + " " + dbr.getCount() + " " + list(dbr.getValue()));
        if (dbr instanceof STS it) {
            text.append(" " + it.getStatus().getName() + " " + it.getSeverity().getName());
        }
        if (dbr instanceof TIME it) {
            text.append(it.getTimeStamp() != null && it.getTimeStamp().secPastEpoch() > 0 ? " stamped" : " unstamped");
        }
        if (dbr instanceof PRECISION it) {
            text.append(" precision " + it.getPrecision());
        }
        if (dbr instanceof GR it) {
            text.append(" " + it.getUnits() + " " + it.getLowerDispLimit() + ".." + it.getUpperDispLimit() + " warning "
                + it.getLowerWarningLimit() + ".." + it.getUpperWarningLimit() + " alarm " + it.getLowerAlarmLimit() + ".."
                + it.getUpperAlarmLimit());
        }
        if (dbr instanceof CTRL it) {
            text.append(" control " + it.getLowerCtrlLimit() + ".." + it.getUpperCtrlLimit());
        }
        if (dbr instanceof LABELS it) {
            text.append(" " + Arrays.toString(it.getLabels()));
        }
        if (dbr instanceof ACK it) {
            text.append(" " + it.getAckS() + " " + it.getAckT());
        }
        return text.toString();
    }

    static String get(Context context, Pv pv, DBRType type, int count) throws Exception {
        CompletableFuture<String> answer = new CompletableFuture<>();
        try {
            pv.channel.get(type, count, event -> answer.complete(event.getStatus().getName() + " " + shown(event.getDBR())));
        } catch (CAException | IllegalArgumentException refused) {
            return "refused: " + refused.getMessage();
        }
        context.flushIO();
        return answer.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    interface Put {
        void with(PutListener listener) throws Exception;
    }

    static String put(Context context, Put put) throws Exception {
        CompletableFuture<String> answer = new CompletableFuture<>();
        put.with(event -> answer.complete(event.getStatus().getName() + " " + event.getType().getName() + " " + event.getCount()));
        context.flushIO();
        return answer.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** The types in which a display asks for a channel's value. */
    static List<DBRType> types(DBRType plain) {
        List<DBRType> types = new ArrayList<>(List.of(plain));
        for (String form : List.of("STS", "TIME", "GR", "CTRL", "LABELS")) {
            DBRType type = DBRType.forName(plain.getName().replace("DBR_", "DBR_" + form + "_"));
            if (type != null) {
                types.add(type);
            }
        }
        types.add(DBRType.STRING);
        types.add(DBRType.TIME_STRING);
        types.add(DBRType.STSACK_STRING);
        types.add(DBRType.DOUBLE);
        return types;
    }

    public static void main(String[] names) {
        try {
            look(names);
            System.out.println("-- done");
        } catch (Throwable wrong) {
            System.out.println(wrong);
        }
        // The library's threads would keep the program.
        System.exit(0);
    }

    static void look(String[] names) throws Exception {
        Context context = JCALibrary.getInstance().createContext(JCALibrary.CHANNEL_ACCESS_JAVA);
        context.addContextExceptionListener(new ContextExceptionListener() {
            public void contextException(ContextExceptionEvent event) {
                System.out.println("exception: " + event.getMessage());
            }

            public void contextVirtualCircuitException(ContextVirtualCircuitExceptionEvent event) {
            }
        });
        Map<String, Pv> pvs = new LinkedHashMap<>();
        for (String name : names) {
            pvs.put(name, new Pv(context, name));
        }
        context.flushIO();
        for (Pv pv : pvs.values()) {
            pv.expect(pv.links, "connected");
            pv.channel.addAccessRightsListener(pv);
            DBRType type = pv.channel.getFieldType();
            System.out.println(pv.name + ": " + type.getName() + " " + pv.channel.getElementCount() + " read "
                + pv.channel.getReadAccess() + " write " + pv.channel.getWriteAccess());
            for (DBRType wanted : types(type)) {
                for (int count : new int[] {1, pv.channel.getElementCount()}) {
                    System.out.println("  " + wanted.getName() + " " + count + ": " + get(context, pv, wanted, count));
                }
            }
            int count = pv.channel.getElementCount();
            pv.channel.addMonitor(DBRType.forName(type.getName().replace("DBR_", "DBR_TIME_")), count,
                Monitor.VALUE | Monitor.ALARM, pv);
            context.flushIO();
            pv.expect(pv.seen, "TIME");
            pv.channel.addMonitor(DBRType.forName(type.getName().replace("DBR_", "DBR_CTRL_")), 1, Monitor.PROPERTY, pv);
            context.flushIO();
            pv.expect(pv.seen, type == DBRType.STRING ? "STRING" : "CTRL");
        }
        System.out.println("-- writing");
        Channel out = pvs.get("X:ao").channel, word = pvs.get("X:mbbo").channel, wave = pvs.get("X:wave").channel;
        Channel text = pvs.get("X:text").channel, number = pvs.get("X:number").channel;
        for (double value : new double[] {1.5, 60, 85, -1000, 0}) {
            System.out.println("X:ao " + value + ": " + put(context, done -> out.put(value, done)));
            pvs.get("X:ao").expect(pvs.get("X:ao").seen, "TIME");
        }
        for (String value : new String[] {"two", "nonsense", "2", "99"}) {
            System.out.println("X:mbbo " + value + ": " + put(context, done -> word.put(value, done)));
        }
        pvs.get("X:mbbo").expect(pvs.get("X:mbbo").seen, "[2]");
        System.out.println("X:wave: " + put(context, done -> wave.put(new double[] {1, 2, 3}, done)));
        pvs.get("X:wave").expect(pvs.get("X:wave").seen, "[1.0, 2.0, 3.0");
        System.out.println("X:text: " + put(context, done -> text.put("hello", done)));
        pvs.get("X:text").expect(pvs.get("X:text").seen, "hello");
        System.out.println("X:number: " + put(context, done -> number.put(new int[] {42}, done)));
        pvs.get("X:number").expect(pvs.get("X:number").seen, "42");
        System.out.println("X:number as text: " + put(context, done -> number.put("17.9", done)));
        pvs.get("X:number").expect(pvs.get("X:number").seen, "17");
        System.out.println("acknowledge: " + put(context, done -> out.putACKS(Severity.MAJOR_ALARM, done)));
        System.out.println("transient: " + put(context, done -> out.putACKT(false, done)));
        System.out.println("  " + get(context, pvs.get("X:ao"), DBRType.STSACK_STRING, 1));
        System.out.println("X:ao.EGU: " + get(context, pvs.get("X:ao.EGU"), DBRType.STRING, 1));
        System.out.println("X:ao.EGU: " + put(context, done -> pvs.get("X:ao.EGU").channel.put("V", done)));
        pvs.get("X:ao").expect(pvs.get("X:ao").seen, "CTRL");
        try {
            System.out.println("X:ao.NAME: " + put(context, done -> pvs.get("X:ao.NAME").channel.put("Y", done)));
        } catch (CAException refused) {
            System.out.println("X:ao.NAME: " + refused.getMessage());
        }
        System.out.println("-- the IOC goes");
        System.in.read();
        for (Pv pv : pvs.values()) {
            pv.expect(pv.links, "disconnected");
        }
        System.out.println("-- the IOC comes back");
        System.in.read();
        for (Pv pv : pvs.values()) {
            pv.expect(pv.links, "connected");
            // Both subscriptions, in any order.
            Set<String> both = new TreeSet<>();
            while (both.size() < 2) {
                both.add(String.valueOf(pv.seen.poll(PATIENCE_S, TimeUnit.SECONDS)));
            }
            System.out.println("  " + pv.name + ": " + both);
        }
        System.out.println("X:ao: " + put(context, done -> out.put(33.0, done)));
        pvs.get("X:ao").expect(pvs.get("X:ao").seen, "[33.0]");
        context.destroy();
    }
}
