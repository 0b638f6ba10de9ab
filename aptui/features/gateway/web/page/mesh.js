// Reads models in the part of binary glTF 2.0 that the demo's builders write, and draws them turning: with WebGL 2, or as triangles on a
// 2D canvas.

const READERS = { 5120: Int8Array, 5121: Uint8Array, 5122: Int16Array, 5123: Uint16Array, 5125: Uint32Array, 5126: Float32Array };
const WIDTHS = { SCALAR: 1, VEC2: 2, VEC3: 3, VEC4: 4 };
const LARGEST = { 5120: 127, 5121: 255, 5122: 32767, 5123: 65535 };
const GLB = 0x46546c67, JSON_CHUNK = 0x4e4f534a;
const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const TURN_PER_MS = 0.0006, TILT = 0.28, DISTANCE = 3.1, FOCUS = 2.6;
const LIGHT = [-0.45, 0.7, 0.55];

// ------------------------------------------------------------------------------------------------------------------ reading

/** Return {parts, middle, radius, triangles} of a GLB; each part has positions, normals, places (texture), indices, colour, glow and image. */
export async function readModel(bytes) {
  const view = new DataView(bytes);
  if (bytes.byteLength < 20 || view.getUint32(0, true) !== GLB || view.getUint32(16, true) !== JSON_CHUNK) throw new Error("not a GLB");
  const length = view.getUint32(12, true);
  const tree = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 20, length)));
  const file = { tree, bytes, start: 20 + length + 8 };
  const images = await Promise.all((tree.images ?? []).map((image) => readImage(file, image)));
  const parts = [];
  const visit = (index, above) => {
    const node = tree.nodes[index];
    const here = times(above, node.matrix ?? placed(node));
    for (const primitive of tree.meshes?.[node.mesh]?.primitives ?? []) parts.push(readPart(file, primitive, here, images));
    for (const child of node.children ?? []) visit(child, here);
  };
  for (const root of tree.scenes?.[tree.scene ?? 0]?.nodes ?? tree.nodes.keys()) visit(root, placed({}));
  return { parts, ...extent(parts), triangles: parts.reduce((sum, part) => sum + part.indices.length / 3, 0) };
}

function readPart(file, primitive, matrix, images) {
  const { POSITION, NORMAL, TEXCOORD_0 } = primitive.attributes;
  const positions = numbers(file, POSITION), count = positions.length / 3;
  const indices = primitive.indices === undefined ? Uint32Array.from({ length: count }, (_, i) => i) : Uint32Array.from(numbers(file, primitive.indices));
  const material = file.tree.materials?.[primitive.material] ?? {}, surface = material.pbrMetallicRoughness ?? {};
  const part = {
    positions, indices, places: TEXCOORD_0 === undefined ? new Float32Array(2 * count) : numbers(file, TEXCOORD_0),
    colour: surface.baseColorFactor ?? [1, 1, 1, 1], glow: material.emissiveFactor ?? [0, 0, 0],
    image: images[file.tree.textures?.[surface.baseColorTexture?.index]?.source] ?? null,
  };
  part.normals = NORMAL === undefined ? smoothed(part) : numbers(file, NORMAL);
  for (let at = 0; at < positions.length; at += 3) {
    positions.set(moved(matrix, positions.subarray(at, at + 3), 1), at);
    part.normals.set(unit(moved(matrix, part.normals.subarray(at, at + 3), 0)), at);
  }
  return part;
}

/** Return the numbers of an accessor; normalised integers are converted to numbers between -1 and 1. */
function numbers({ tree, bytes, start }, index) {
  const accessor = tree.accessors[index], buffer = tree.bufferViews[accessor.bufferView];
  const Reader = READERS[accessor.componentType], width = WIDTHS[accessor.type];
  const step = buffer.byteStride ?? width * Reader.BYTES_PER_ELEMENT, found = new Float32Array(accessor.count * width);
  const whole = accessor.componentType === 5125 ? new Uint32Array(found.length) : found;
  for (let row = 0; row < accessor.count; row++) {
    const at = start + (buffer.byteOffset ?? 0) + (accessor.byteOffset ?? 0) + row * step;
    whole.set(new Reader(bytes.slice(at, at + width * Reader.BYTES_PER_ELEMENT)), row * width);
  }
  return accessor.normalized ? whole.map((each) => Math.max(each / LARGEST[accessor.componentType], -1)) : whole;
}

async function readImage({ tree, bytes, start }, image) {
  const view = tree.bufferViews[image.bufferView];
  if (!view) return null; // it lies elsewhere: the model is drawn in its colour
  const blob = new Blob([new Uint8Array(bytes, start + (view.byteOffset ?? 0), view.byteLength)], { type: image.mimeType });
  return createImageBitmap(blob).catch(() => null);
}

function extent(parts) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  for (const { positions } of parts) {
    positions.forEach((each, at) => { low[at % 3] = Math.min(low[at % 3], each); high[at % 3] = Math.max(high[at % 3], each); });
  }
  return { middle: low.map((each, axis) => (each + high[axis]) / 2), radius: Math.hypot(...low.map((each, axis) => high[axis] - each)) / 2 || 1 };
}

function smoothed({ positions, indices }) {
  const normals = new Float32Array(positions.length);
  const corner = (index) => positions.subarray(3 * index, 3 * index + 3);
  for (let at = 0; at < indices.length; at += 3) {
    const [a, b, c] = [0, 1, 2].map((i) => indices[at + i]);
    const face = cross(minus(corner(b), corner(a)), minus(corner(c), corner(a)));
    for (const index of [a, b, c]) face.forEach((each, axis) => { normals[3 * index + axis] += each; });
  }
  return normals;
}

// ------------------------------------------------------------------------------------------------------------------- vectors

const minus = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const unit = (a) => { const length = Math.hypot(...a) || 1; return a.map((each) => each / length); };
const moved = (m, [x, y, z], w) => [0, 1, 2].map((row) => m[row] * x + m[4 + row] * y + m[8 + row] * z + m[12 + row] * w);

/** Return the product of two matrices of four columns. */
function times(a, b) {
  return Array.from({ length: 16 }, (_, at) => [0, 1, 2, 3].reduce((sum, i) => sum + a[4 * i + (at % 4)] * b[4 * (at >> 2) + i], 0));
}

/** Return the matrix of a node's translation, rotation (a quaternion) and scale. */
function placed({ translation: t = [0, 0, 0], rotation: [x, y, z, w] = [0, 0, 0, 1], scale: [a, b, c] = [1, 1, 1] }) {
  return [
    a * (1 - 2 * (y * y + z * z)), a * 2 * (x * y + z * w), a * 2 * (x * z - y * w), 0,
    b * 2 * (x * y - z * w), b * (1 - 2 * (x * x + z * z)), b * 2 * (y * z + x * w), 0,
    c * 2 * (x * z + y * w), c * 2 * (y * z - x * w), c * (1 - 2 * (x * x + y * y)), 0, ...t, 1,
  ];
}

/** Return the view matrix of a model: moves its middle to the origin, scales its radius to one, turns it, and moves it away from the eye. */
function seen({ middle, radius }, angle) {
  const [s, c, st, ct] = [Math.sin(angle), Math.cos(angle), Math.sin(TILT), Math.cos(TILT)];
  const turn = [c, s * st, -s * ct, 0, 0, ct, st, 0, s, -c * st, c * ct, 0, 0, 0, -DISTANCE, 1];
  const scale = [1 / radius, 1 / radius, 1 / radius];
  return times(turn, placed({ scale, translation: middle.map((each) => -each / radius) }));
}

// ------------------------------------------------------------------------------------------------------------------- drawing

const VERTEX = `#version 300 es
uniform mat4 seen; uniform vec2 focus;
in vec3 position, normal; in vec2 place;
out vec3 at, up; out vec2 where;
void main() {
  at = (seen * vec4(position, 1)).xyz; up = mat3(seen) * normal; where = place;
  gl_Position = vec4(at.xy * focus, -1.02 * at.z - 2.02, -at.z);
}`;
const FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 colour; uniform vec3 glow, light; uniform sampler2D picture;
in vec3 at, up; in vec2 where;
out vec4 drawn;
void main() {
  vec3 n = normalize(up), eye = normalize(-at), l = normalize(light);
  n = dot(n, eye) < 0.0 ? -n : n;
  vec4 base = texture(picture, where);
  base = vec4(pow(base.rgb, vec3(2.2)), base.a) * colour;
  if (base.a < 0.03) discard;
  float key = max(dot(n, l), 0.0), rim = pow(1.0 - max(dot(n, eye), 0.0), 3.0);
  float shine = pow(max(dot(n, normalize(l + eye)), 0.0), 40.0);
  vec3 lit = base.rgb * (0.22 + 0.1 * n.y + 0.85 * key + 0.25 * rim) + 0.12 * shine + glow;
  drawn = vec4(pow(lit, vec3(1.0 / 2.2)) * base.a, base.a);
}`;

/** Draws with WebGL 2. */
class Lit {
  constructor(gl) {
    this.gl = gl;
    this.parts = [];
  }

  static of(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: true, alpha: true });
    return gl && new Lit(gl);
  }

  load(model) {
    const { gl } = this;
    this.program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
    }
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(this.program) || "no shaders");
    this.parts.forEach((part) => { gl.deleteVertexArray(part.vertices); part.buffers.forEach((each) => gl.deleteBuffer(each)); gl.deleteTexture(part.texture); });
    this.parts = model.parts.map((part) => this.upload(part));
  }

  upload(part) {
    const { gl } = this, vertices = gl.createVertexArray(), buffers = [];
    const fill = (kind, data) => { buffers.push(gl.createBuffer()); gl.bindBuffer(kind, buffers.at(-1)); gl.bufferData(kind, data, gl.STATIC_DRAW); };
    gl.bindVertexArray(vertices);
    for (const [name, data, width] of [["position", part.positions, 3], ["normal", part.normals, 3], ["place", part.places, 2]]) {
      const at = gl.getAttribLocation(this.program, name);
      fill(gl.ARRAY_BUFFER, data);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, width, gl.FLOAT, false, 0, 0);
    }
    fill(gl.ELEMENT_ARRAY_BUFFER, part.indices);
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    if (part.image) gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, part.image);
    else gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 1, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array([255, 255, 255, 255]));
    gl.generateMipmap(gl.TEXTURE_2D);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR_MIPMAP_LINEAR);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST); // pictures of few pixels
    return { vertices, buffers, texture, count: part.indices.length, colour: part.colour, glow: part.glow };
  }

  draw(matrix, width, height) {
    const { gl, program } = this, at = (name) => gl.getUniformLocation(program, name);
    gl.viewport(0, 0, width, height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.useProgram(program);
    gl.uniformMatrix4fv(at("seen"), false, matrix);
    gl.uniform2f(at("focus"), FOCUS * Math.min(1, height / width), FOCUS * Math.min(1, width / height));
    gl.uniform3fv(at("light"), LIGHT);
    for (const part of this.parts) {
      gl.uniform4fv(at("colour"), part.colour);
      gl.uniform3fv(at("glow"), part.glow);
      gl.bindTexture(gl.TEXTURE_2D, part.texture);
      gl.bindVertexArray(part.vertices);
      gl.drawElements(gl.TRIANGLES, part.count, gl.UNSIGNED_INT, 0);
    }
  }
}

/** Draws triangles on a 2D canvas, the farthest first: for browsers without WebGL. */
class Plain {
  constructor(canvas) {
    this.context = canvas.getContext("2d");
  }

  load(model) {
    this.parts = model.parts.map((part) => ({ ...part, base: part.colour.map((each, i) => each * (part.image ? average(part.image)[i] : 1)) }));
  }

  draw(matrix, width, height) {
    const { context } = this, side = (Math.min(width, height) / 2) * FOCUS, light = unit(LIGHT), faces = [];
    for (const { positions, normals, indices, base, glow } of this.parts) {
      const points = new Float32Array(positions.length);
      for (let at = 0; at < positions.length; at += 3) points.set(moved(matrix, positions.subarray(at, at + 3), 1), at);
      for (let at = 0; at < indices.length; at += 3) {
        const corners = [0, 1, 2].map((i) => points.subarray(3 * indices[at + i], 3 * indices[at + i] + 3));
        let up = unit(moved(matrix, normals.subarray(3 * indices[at], 3 * indices[at] + 3), 0));
        if (dot(up, corners[0]) > 0) up = up.map((each) => -each);
        const bright = 0.24 + 0.1 * up[1] + 0.85 * Math.max(dot(up, light), 0);
        const colour = [0, 1, 2].map((i) => Math.round(255 * Math.min(base[i] * bright + glow[i], 1) ** (1 / 2.2)));
        faces.push({ corners, colour: `rgb(${colour.join(" ")} / ${base[3]})`, depth: corners[0][2] + corners[1][2] + corners[2][2] });
      }
    }
    context.clearRect(0, 0, width, height);
    for (const { corners, colour } of faces.sort((a, b) => a.depth - b.depth)) {
      context.fillStyle = context.strokeStyle = colour;
      context.beginPath();
      for (const [x, y, z] of corners) context.lineTo(width / 2 - (x / z) * side, height / 2 + (y / z) * side);
      context.closePath();
      context.fill();
      context.stroke(); // closes the seams between neighbours
    }
  }
}

/** Return the mean colour of an image, linear, as four numbers up to one. */
function average(image) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].map((each, i) => (i < 3 ? (each / 255) ** 2.2 : each / 255));
}

/** A canvas in which a model turns; people turn it by dragging. */
export class Stage {
  constructor(canvas) {
    this.canvas = canvas;
    this.painter = Lit.of(canvas) ?? new Plain(canvas);
    this.angle = 0.6;
    this.isSeen = true;
    new IntersectionObserver(([{ isIntersecting }]) => { this.isSeen = isIntersecting; this.ask(); }).observe(canvas);
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => { this.painter.parts = []; if (this.model) this.show(this.model); });
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) { this.angle += event.movementX * 0.01; this.ask(); } });
    STILL.addEventListener("change", () => this.ask());
  }

  show(model) {
    this.model = model;
    this.painter.load(model);
    this.draw();
    this.ask();
  }

  ask() {
    this.asked ??= this.model && this.isSeen && this.canvas.isConnected && requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.asked = null;
    if (!STILL.matches) this.angle += TURN_PER_MS * Math.min(now - (this.last ?? now), 250);
    this.last = now;
    this.draw();
    if (STILL.matches) return;
    const took = performance.now() - now;
    // Without WebGL, drawing a model may take long, so the page gets time for other work.
    if (took > 8) setTimeout(() => this.ask(), 4 * took);
    else this.ask();
  }

  draw() {
    const { canvas } = this, ratio = Math.min(devicePixelRatio, 2);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((each) => Math.max(1, Math.round(each * ratio)));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    this.painter.draw(seen(this.model, this.angle), width, height);
  }
}
