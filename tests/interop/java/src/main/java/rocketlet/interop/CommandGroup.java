package rocketlet.interop;

import java.util.Map;

/** Commands that belong together; {@link Driver} lists the groups. */
interface CommandGroup {
    /** Name on the wire ("producer.send") to command. */
    Map<String, Command> commands();
}
