// node grafana.mjs DASHBOARD.json...
// Compiles each dashboard against the types that Grafana publishes: an option that no panel knows, a misspelt value
// or a number in place of a text is an error, with the panel's title. Prints one line for each dashboard.
import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const HERE = dirname(fileURLToPath(import.meta.url));
const TYPES = join(HERE, "node_modules/@grafana/schema/dist/types");
// What a panel's options and the settings of its fields are called in the schema: [folder, has fields].
const PANELS = {
  bargauge: ["bargauge", false],
  stat: ["stat", false],
  "state-timeline": ["statetimeline", true],
  table: ["table", false],
  timeseries: ["timeseries", true],
};
const OPTIONS = {
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  types: [],
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
};

// JSON has texts where TypeScript has enums of texts; as unions of texts they say the same.
const withoutEnums = (text) =>
  text.replace(/export declare enum (\w+) \{([^}]*)\}/g, (whole, name, body) => {
    const values = [...body.matchAll(/=\s*("[^"]*")/g)].map((found) => found[1]);
    return values.length > 0 ? `export type ${name} = ${values.join(" | ")};` : whole;
  });

function source(dashboard) {
  const { panels, ...rest } = dashboard;
  const all = panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
  const lines = [
    `import type { Dashboard, Panel, RowPanel } from "${TYPES}/index";`,
    ...Object.values(PANELS).map(
      ([folder]) => `import type * as ${folder} from "${TYPES}/raw/composable/${folder}/panelcfg/x/types.gen";`,
    ),
    `const dashboard: Dashboard = ${JSON.stringify(rest)};`,
  ];
  const origins = lines.map(() => "the dashboard itself");
  const put = (panel, type, value) => {
    lines.push(`const v${lines.length}: ${type} = ${JSON.stringify(value)};`);
    origins.push(`panel "${panel.title}"`);
  };
  for (const panel of all) {
    if (panel.type === "row") {
      put(panel, "RowPanel", { ...panel, panels: [] });
      continue;
    }
    const known = PANELS[panel.type];
    if (!known) throw new Error(`panel "${panel.title}": no row in PANELS for the type ${panel.type}`);
    const [folder, hasFields] = known;
    put(panel, "Panel", panel);
    put(panel, `Partial<${folder}.Options>`, panel.options ?? {});
    if (hasFields) put(panel, `Partial<${folder}.FieldConfig>`, panel.fieldConfig?.defaults?.custom ?? {});
  }
  return { text: lines.join("\n"), origins, count: all.length };
}

function faults({ text, origins }) {
  const file = join(HERE, "dashboard.ts");
  const host = ts.createCompilerHost(OPTIONS);
  const { readFile, fileExists, getSourceFile } = host;
  host.fileExists = (name) => name === file || fileExists.call(host, name);
  host.readFile = (name) => (name === file ? text : readFile.call(host, name));
  host.getSourceFile = (name, ...more) => {
    if (name === file) return ts.createSourceFile(name, text, ...more);
    if (name.startsWith(TYPES)) return ts.createSourceFile(name, withoutEnums(readFileSync(name, "utf8")), ...more);
    return getSourceFile.call(host, name, ...more);
  };
  const found = ts.getPreEmitDiagnostics(ts.createProgram([file], OPTIONS, host));
  return found.map((fault) => {
    const line = fault.file?.fileName === file ? fault.file.getLineAndCharacterOfPosition(fault.start).line : -1;
    const words = ts.flattenDiagnosticMessageText(fault.messageText, "\n").trim().split("\n");
    const where = origins[line] ?? fault.file?.fileName ?? "the schema";
    return `${where}: ${words[0]}${words.length > 1 ? ` (${words.at(-1).trim()})` : ""}`;
  });
}

let failed = false;
for (const path of process.argv.slice(2)) {
  const made = source(JSON.parse(readFileSync(path, "utf8")));
  const found = faults(made);
  console.log(`${basename(path)}: ${made.count} panels, ${found.length} faults`);
  for (const fault of found) console.log(`  ${fault}`);
  failed ||= found.length > 0;
}
process.exit(failed ? 1 : 0);
