// node page.mjs CHECK http://ADDRESS FOLDER
// Looks at the status page in Chromium. Prints `now` when something may change, and at the end a line with what was
// seen; pictures go to the folder. Any fault is a text on standard error, and status 1.
import { join } from "node:path";
import { chromium } from "playwright-core";

const WITHIN = 60_000;
// Smaller text is not read on a phone.
const SMALLEST = 12;
const [name, address, folder] = process.argv.slice(2);

function must(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}

const ask = async (path) => (await fetch(address + path)).json();
// As much as a window shows.
const picture = (page, file) => page.screenshot({ path: join(folder, file) });
// The cards of the overview, by the volume's name.
const cards = (page) =>
  page.$$eval(".volumes li", (all) =>
    all.map((card) => ({ id: card.querySelector("h3 a").textContent, text: card.innerText })),
  );

async function everyVolumeIsThere(page) {
  const { volumes } = await ask("/api/v1/volumes");
  const shown = await cards(page);
  for (const { id, state, reason } of volumes) {
    const card = shown.find((one) => one.id === id);
    must(card, `the page does not show ${id}`);
    must(card.text.includes(state), `the page does not say that ${id} is ${state}: ${card.text}`);
    must(!reason || card.text.includes(reason), `the page does not say why ${id} is sick: ${card.text}`);
  }
  must(shown.length === volumes.length, `${shown.length} volumes are shown, there are ${volumes.length}`);
  return volumes;
}

async function fitsOnAPhone(page) {
  const found = await page.evaluate((smallest) => {
    const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    const texts = [...document.querySelectorAll("body *")].filter((one) =>
      [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()),
    );
    const shown = texts.filter((one) => one.checkVisibility());
    const small = shown.filter((one) => parseFloat(getComputedStyle(one).fontSize) < smallest);
    return { wide, small: small.map((one) => one.textContent.trim().slice(0, 40)) };
  }, SMALLEST);
  must(found.wide <= 0, `the page is ${found.wide} pixels wider than the phone`);
  must(found.small.length === 0, `text below ${SMALLEST} pixels: ${found.small.join(", ")}`);
}

const CHECKS = {
  // What a browser of any size shows, and that it asks nobody else.
  async wide(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.goto(address);
    await page.waitForFunction(() => document.getElementById("live").dataset.is === "live");
    const volumes = await everyVolumeIsThere(page);
    const sick = volumes.filter((volume) => volume.sick).length;
    const heading = await page.innerText("h1");
    must(heading.includes(`${sick} of ${volumes.length}`), `the heading says ${heading}`);
    must((await page.$$(".events li")).length > 0, "no event is shown");
    await picture(page, "status-page.png");
    await page.emulateMedia({ colorScheme: "dark" });
    await picture(page, "status-page-dark.png");
    return `${volumes.length} volumes, ${sick} sick; nothing asked elsewhere`;
  },
  async phone(browser) {
    const page = await open(browser, {
      viewport: { width: 390, height: 844 },
      deviceScaleFactor: 2,
      isMobile: true,
      hasTouch: true,
    });
    await page.goto(address);
    await everyVolumeIsThere(page);
    await fitsOnAPhone(page);
    await picture(page, "status-page-phone.png");
    await page.tap('h3 a:text-is("errors")');
    await page.waitForURL("**/?volume=errors");
    await fitsOnAPhone(page);
    return "390 pixels, no sideways scrolling, text of 12 pixels and more";
  },
  async scriptless(browser) {
    const page = await open(browser, { javaScriptEnabled: false });
    await page.goto(address);
    const volumes = await everyVolumeIsThere(page);
    must((await page.$$("noscript meta[http-equiv=refresh]")).length === 1, "the page does not load itself anew");
    await page.fill("input[name=q]", "shared");
    await page.click("form button");
    const found = (await cards(page)).map((card) => card.id).sort();
    const wanted = volumes.map((volume) => volume.id).filter((id) => id.includes("shared"));
    must(found.join() === wanted.sort().join(), `the filter finds ${found.join(", ")}`);
    must(new URL(page.url()).searchParams.get("q") === "shared", `the filter has no address: ${page.url()}`);
    await page.selectOption("select", "sick");
    await page.fill("input[name=q]", "");
    await page.click("form button");
    const sick = volumes.filter((volume) => volume.sick).map((volume) => volume.id);
    const shown = (await cards(page)).map((card) => card.id);
    must(shown.sort().join() === sick.sort().join(), `as sick it shows ${shown.join(", ")}`);
    return `${volumes.length} volumes, found by a word and by their state`;
  },
  // The page of one volume, from the overview and by its address.
  async permalink(browser) {
    const page = await open(browser, { viewport: { width: 1280, height: 900 } });
    await page.goto(address);
    await page.click('h3 a:text-is("errors")');
    await page.waitForURL("**/?volume=errors");
    const { state, reason } = await ask("/api/v1/volumes/errors");
    for (const page of [await open(browser, {}), await open(browser, { javaScriptEnabled: false })]) {
      await page.goto(`${address}/?volume=errors`);
      const text = await page.innerText("main");
      for (const word of ["errors", state, reason, "since", "EIO", "read"]) {
        must(text.includes(word), `the page of the volume does not say "${word}": ${text}`);
      }
      must((await page.$$(".events li")).length > 0, "the page of the volume has no event");
    }
    await picture(page, "status-page-volume.png");
    await page.goBack();
    must(new URL(page.url()).pathname === "/", `back leads to ${page.url()}`);
    return "the same by a click, by its address, and without scripts";
  },
  // What happens is shown without the page being loaded by hand.
  async live(browser) {
    const page = await open(browser, {});
    await page.goto(address);
    await page.waitForFunction(() => document.getElementById("live").dataset.is === "live");
    const card = page.locator(".volumes li", { has: page.locator('h3 a:text-is("models")') });
    must((await card.innerText()).includes("healthy"), "models is not healthy at first");
    // It is gone after a navigation, and stays where only a part is exchanged.
    await page.evaluate(() => (window.same = true));
    console.log("now");
    await card.filter({ hasText: "degraded" }).waitFor();
    const event = page.locator(".events li", { hasText: "models" }).first();
    must(await event.isVisible(), "no event tells of it");
    must(await page.evaluate(() => window.same), "the page was loaded anew");
    return "a volume became sick before the viewer's eyes";
  },
};

// A page that tells of every fault: of scripts, of rules that the page itself sets, and requests to anybody else.
async function open(browser, options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(WITHIN);
  const page = await context.newPage();
  page.on("pageerror", (error) => faults.push(`a script fails: ${error}`));
  page.on("console", (said) => {
    if (said.type() === "error") faults.push(`the browser complains: ${said.text()}`);
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.origin !== address) faults.push(`it asks elsewhere: ${url}`);
  });
  return page;
}

const faults = [];
const check = CHECKS[name];
must(check, `there is no check ${name}; there are: ${Object.keys(CHECKS).join(", ")}`);
// Its sandbox does not work for root; it only opens our own page.
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const seen = await check(browser);
  must(faults.length === 0, faults.join("\n"));
  console.log(seen);
} catch (error) {
  console.error([error.message, ...faults].join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
}
