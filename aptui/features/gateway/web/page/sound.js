// Decodes a sound, draws its waveform and plays it.

const SAMPLE_RATE_HZ = 44100;
const PLAY = "M4 2.5v11l9-5.5z", STOP = "M3.5 3.5h9v9h-9z";
const SVG = "http://www.w3.org/2000/svg";
let speaker = null;

export class Sound {
  /** The button and the canvas of a sound, in the element `tile`. */
  constructor(tile, name) {
    this.button = tile.appendChild(document.createElement("button"));
    this.button.setAttribute("aria-label", `Play ${name}`);
    const icon = this.button.appendChild(document.createElementNS(SVG, "svg"));
    icon.setAttribute("viewBox", "0 0 16 16");
    icon.setAttribute("width", "16");
    this.shape = icon.appendChild(document.createElementNS(SVG, "path"));
    this.shape.setAttribute("d", PLAY);
    this.canvas = tile.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Waveform of ${name}`);
    this.button.onclick = () => (this.source ? this.stop() : this.play());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Decode `bytes` and draw them; return the decoded sound. */
  async show(bytes) {
    this.sound = await new OfflineAudioContext(1, 1, SAMPLE_RATE_HZ).decodeAudioData(bytes);
    this.stop();
    return this.sound;
  }

  play() {
    speaker ??= new AudioContext();
    speaker.resume();
    this.source = new AudioBufferSourceNode(speaker, { buffer: this.sound });
    this.source.connect(speaker.destination);
    this.source.onended = () => this.stop();
    this.source.start();
    this.began = speaker.currentTime;
    this.shape.setAttribute("d", STOP);
    this.follow(this.source);
  }

  follow(source) {
    if (this.source !== source) return;
    this.draw((speaker.currentTime - this.began) / this.sound.duration);
    requestAnimationFrame(() => this.follow(source));
  }

  stop() {
    if (this.source) {
      this.source.onended = null;
      this.source.stop();
      this.source = null;
    }
    this.shape.setAttribute("d", PLAY);
    this.draw();
  }

  draw(played = 0) {
    const { canvas, sound } = this, ratio = devicePixelRatio, style = getComputedStyle(canvas);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((each) => Math.max(1, Math.round(each * ratio)));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d"), step = 3 * ratio, count = Math.floor(width / step) - 2;
    context.clearRect(0, 0, width, height);
    if (!sound || count < 1) return;
    const samples = sound.getChannelData(0);
    for (let bar = 0; bar < count; bar++) {
      const [from, to] = [bar, bar + 1].map((each) => Math.floor((each / count) * samples.length));
      let loudest = 0;
      for (let at = from; at < to; at++) loudest = Math.max(loudest, Math.abs(samples[at]));
      const tall = Math.max(loudest * height * 0.8, 1.5 * ratio);
      context.fillStyle = style.getPropertyValue(bar / count < played ? "--accent" : "--dim");
      context.fillRect((bar + 1) * step, (height - tall) / 2, 2 * ratio, tall);
    }
  }
}
