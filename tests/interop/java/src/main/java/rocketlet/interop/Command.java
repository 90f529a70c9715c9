package rocketlet.interop;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A method that a command of the driver runs: takes its arguments, returns what is written as JSON (null for nothing). */
@Retention(RetentionPolicy.RUNTIME)
@interface Command {
    /** Name on the wire: "producer.send". */
    String value();
}
