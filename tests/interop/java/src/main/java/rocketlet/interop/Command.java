package rocketlet.interop;

/** One command of the driver: takes its arguments, returns what is written as JSON (null for nothing to tell). */
@FunctionalInterface
interface Command {
    Object run(Arguments arguments) throws Exception;
}
