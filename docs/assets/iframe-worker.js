// Browsers start no worker on pages of the file system. There the search runs in a frame without a page instead.
if (location.protocol === "file:") {
  window.Worker = class {
    onmessage = null;
    onerror = null;
    onmessageerror = null;
    #frame = document.createElement("iframe");
    #waiting = [];
    #isReady = false;

    constructor(url) {
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.(new MessageEvent("message", { data })));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href);
      script.onload = () => {
        this.#isReady = true;
        this.#waiting.splice(0).forEach((data) => this.#deliver(data));
      };
      script.onerror = () => this.onerror?.(new ErrorEvent("error", { message: `${url} cannot be loaded` }));
      inside.document.body.append(script);
    }

    postMessage(data) {
      if (this.#isReady) {
        this.#deliver(data);
      } else {
        this.#waiting.push(data);
      }
    }

    terminate() {
      this.#frame.remove();
    }

    #deliver(data) {
      const inside = this.#frame.contentWindow;
      inside.setTimeout(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
