// The codebooks of GGUF's formats of one to three bits: what their indices stand for, from ggml (ggml-common.h).

/**
 * Entries of 16 bits, in ascending order, as base64 of the differences between neighbours: a byte each, of which 255 adds the next
 * one.
 */
const CODEBOOKS: Readonly<Record<CodebookName, string>> = {
  /** 2048 entries of 8 digits of 2 bits: -1, 0 and 1. */
  IQ1:
    "AAIDAwIHBAsCBgIbDAMCDxsCBgILCwIGAloBDAMCAwELHAUDCQMFBwMCAh0MAwIPWwIGAgsLAgYCGwwICwUXAgYCBwQEBwIGAv9oAwIPHAgMBQ" +
    "oBLAgMXAMBAQ8DAg8XBQUGAQMBAQMHAgMDAhcQBAMCBwMBAQNrBSgDDAIDAwgBBQMcDAMF/2gCBgILCwIGAhsMBQ8bAgYCCwsCBgJbDAMFCwEc" +
    "DwEEDAMFKAMCAwxbAgYCCwsCBgIbDAgIBBsCAwMCCwsCBgL//////2sBAwULARwDDAUDCQMBBCgDAgsEXAMCAwcCAwMJAwUcBQYBAQIBAQMHBR" +
    "8OAwwDbQMCDxsGAwkDAwIKAh8MAwIP/10FAwsBAwEIBRsEAQICBwMBAQMJAwMcBQcEAQMBAQcDAQRZAwUHAwEBAwcCAwMCFwMBAQsBAgEBAwEH" +
    "AwEBAxcCAgEDAgYBAwEBAwEGAgNcAwEBDwECAgcFGgICAQMCBwQBAgEIAwEDAQEcBAgDDwX/aQUPHAMCAwcFAwIGAQMCAxwMAxFrAgMFBwQdAg" +
    "EDCQMBAQMBBgUFHwgBAwMJBQNgDQ4CHgIDBwIDAwkFAxwMBQT//////2sCBgILCwIDAwIbDAgIBBsCBgILCwIDAwJbDAMFDB0CBQwDAgcDAQEf" +
    "CwYDDFwHAgcECwIGAhsMBQMMHAcCBwQLAgYC/1wPAgMMHwEBAwkDAwIMHwwDBQgEZAwMCBcFAwkDAQQJAwMhBwQBAwIHAwIDXAsCBwwcCAwLAQ" +
    "gbAgoK/2cCBgILCwIGAhsMAxEbAgYCFgIGAl8IAwUMIQMJAwwDAgMcCwYDCwFbAgYCFgIGAhsMBQMMGwIGAgsLAgYC////////////////////" +
    "////////cAwFDyQJAwMCBwMCLgUIBVoBAwIDCQMBAgIHBQMcAwIHAwEBAwELAwIXAwIKAgMLAQFjDAMCDxwRAwUKBSALEf9dFAQQHAMCBwMBAQ" +
    "sBAwMCFwUDBwIDCwEIWAEDBQcDAQEDBwUFFwMBAQMHAQMBAQIBCAMBAQMZAgEDCQMBAQMBCwMCVwQECwEDAgcDBRcCAwMIAQEDAQMJAwMZBAUK" +
    "AQwDAv9gDAQFCx0HBwUDCQMCAxwMAwIDDFwEAQQGBAEDCQMCGgUFBwECAQEDBwIDAQQcAwkDAQIJAwIDbS4CAwwDAgoFKxH//////2EDAQEDCQ" +
    "MFBwMFFwUDCQMBAQMMAx4DDAMIAQUDXAMBAQcDAQECAQcFAQICFwMBAQMHAQECAQECAQEHAwEBAxkDDAMBAQMHBQVXBQwDBQcDHgMFBwMBAQMJ" +
    "AyALAgMEAQr/YQEMAwEBAgEIBAMCFwMBAQMBBgEDAQECAQEHAQIBAQMXCAIHAwEBAwgDAQVXAQIBAQMHAQECAQEDAQcDAQEDFwEBAgEBAgEHAQ" +
    "ECAQECAQEGAQMBAQIBARcDAQQBBgEDAQECAQgDAQEDVwEBAgICAQgDAQMBBwEBAgEBAgEYBAECAQEGAQECAQECAQEHAwEEGQMBAgEBBwQFCAMB" +
    "AgH/XAEBAwcFAwkJGwMCBwMBAQIBBwICAR0HBwIDAwkIWAEDBQcDAQEDDBwDAQEDBwEBAgEBAgEBBwMBAQMYBAQIAwEBAgEMXwQNBQYFAQMcAw" +
    "EIBAECAQkDAwIXCQgDAQICB///////aQ8CAwwfDAUBAgIHAwIDGBUPXAMCAwkDDAEEAxwECAQBAwwBBBoGCAMMBQNoBQMnAQUPAQIIJQwFD/9t" +
    "AQMBBAcFAxcCAwMCBwMBAQMBBgIDHwEEBwICAQECAgcDBVwDAgcEAQMrAQEDBwEDAQEDCAMBAQMdAwEHBAEDAQgDAQJaBwwLBgIBFwUDAgcDAQ" +
    "ECAgYFAxgCAwUKAgIBBwQCBP9tAwwcEQMFBwgcDAcOWwMMBQwDAgMXAQQBAgkDAQEDBwUFGAIGCwwDAQRoBQIpAwUHBQMCCgEEHQ4EAgz/////" +
    "//////////////////////9vAgYCFgIGAhsLAQMCAwwbAgYCCwsCBgJbDAMCAwwcAwUHAgMBAgELAgMcBAsCAwxbAgYCCwsCBgInAwUMGwIGAg" +
    "sLAgYC/2sFKAMNBAUHAwUrBWgICQMFDAMXAQQDCQMBAQMBCwECAhcDAgMHAgMDDmsFAwwcAwUBBgUEAQcFBBsMCQr/XQIGAgsLAgYCFwQMAwUM" +
    "BBcCBgILCwIGAlsBCwMCDxwDAgMHAgMFBwMhEQMMWwIGAgsLAgYCGwwDAioCBgILCwIGAv//////YAwFAgEMHAUDDAMCDwEbDAMCAwxcAwIDBw" +
    "UDAgcDAgMXBQsBAwEBAwkDHwIMAwMJAwIDXAwDBQwfAgMHAgMDDgMcDwIT/1kDAgoFAw4aCgcDAQECAQcBAQMfAgwCAQMJCFcFAwIGAQMBAQMI" +
    "BAQBFwMBAQMHAQECAQECAQEHAwEBAxgEAwkBAgEBAwEGAgMDAlcDDAUEBwYDHAMBCAEDAQMMAxoCBQEIAgEPAgP/XREDDBwFCgIDAQQKASAMBQ" +
    "MMXwIDBwIDAwIGAQMCGgIDAwIHAwEBAwkDAQQXAwwCAwUHBV8QEB8CAwcFAwkkDAMBAf//////bwIGAgsLAgYCGwwDAgMnAgYCCwsCBgJbBAgD" +
    "AgMBLAMIBAMCBwMhCwIEA2kGAgYJCQYCGwwFAwwbAgYCCwsCBgL/cAwcAwwEAQMCBwQBAgEcgQMHAgMDDgMZAwwDAQEDDAUXAwEBAwkDA20MBQ" +
    "QHBB8CBAgDAQIIAiQKBQEDCAMC/1sCBgIWAgYCJwMCAycCBgILCwIGAlsPBQgEHA8FBQcFAycGagIGAhYCBgInAwIqAgYCCwsCBgI=",
  /** 256 entries of 8 digits of 2 bits: 8, 25 and 43. */
  IQ2_XXS:
    "AAIDAwIHAwwCBgIXAwwICQMcAggYXwMMBStEFGgCIGD/gAMMEQMcAgYYIQMMFFwCBhgmIxcReAcwRCD/XQUDDBQZAwwCNnw8whL///////IDDB" +
    "EfICQMBWsIGDAKJqQh/7wIGAUkN5hKnhb/7AMMMEF/BZux//////+0Agg6HR8Cpx+4Av//AQMMMBaqQSP/Lf95GHT/sf//////////////////" +
    "/////////9IDDAgJAxwIDgohAwxwIEEfBXwPOA4S/5kIGGAZeRLc//8DAwwwBbtYCSHDS///////dQgJCAdgCHw+Yu3//wECePdT/60RCEvcyP" +
    "///////wIMMCiYVcNI/6EF/wwCcv//wP//////////////////////////////1QIIN0GCFCjR//EDDAUrIKBGTnU3IP+j/wP/Dv//////+AwU" +
    "HGF1asX/vCIi/w7///8zn////////+hONYT3//8a/////zy0",
  /** 512 of the same. */
  IQ2_XS:
    "AAIDAwIHAwIDBwIDAxkDAgMHAgMDCQMcAgMDCQMFB2EDAgMHAgMDAgcDHAIDAwkDDAgZAwxwAgMDCQMMIQMMBSsK/3gDAgMHAgMDCQMcAgMDCQ" +
    "MCCiEDDHACAwMJAwwhAwwRH4EDDBYaAkL/fQIDAwIHAwwFHAMMCCggClcDDDBBCHcgCG4K//////9mAwIDBwIDAwkDHAIDAwkDDAoXAwxwAgMD" +
    "CQMMIQMMMBQCawMCCjAg/6ECAwMJAwwhAwUHFByBAwwwwBQ1/7kDDAIuFDJ6BWHrWP//////XAIDAwIHAwwhAwwwIGEDDDAIHZsiXij/WgMMGR" +
    "fAQRFHaBmM/1sIAhY1MxrGKHgYYgYC////////////////////////////jAMCAwcCAwMJAxwCAwMCBwMMBRwDDHACAwMJAwwhAwwwBR1fAwwC" +
    "Fxf/wQIDAwkDBQchAwwwFG0DDBQcWmYKOgz/sgMMMAUPDp4RMwwZm////////wICAwMJAwwIGQMMMIEDDAUrAr5EZv9YAwwRHyAhIF8IeAiZRz" +
    "n/YBQtD0mBJgL/RP//////gQMMMBQOJCNX/yUmSP9vFvowBV///19pu+FODv///////////////////////////7MCAwMJAwwKFwMMMAImAlcD" +
    "AgowEQinIGACHgj/WgMMAgMrICl3RGFzUv+XCB01JgImXv8dXggOEv//////XgMMMBYufCJC8jP/eAU/DAjRZwKv//8SVaPMS///////pQIGAh" +
    "YKdrEITVoCBiJWIP+hVf/RM/9zFgIGeAhcgAKiAmcZ",
  /** 1024 of the same. */
  IQ2_S:
    "AAIDAwIHAwIDBwIDAxkDAgMHAgMDCQMCAxcCAwMJAwwFBVcDAgMHAgMDCQMcAgMDCQMCAwcFAxkDDAIDDANcAgMDCQMMChcDAgMHBSsFBQoO/2" +
    "ADAgMHAgMDCQMCAxcCAwMCBwMCAwcCAxwDAgMHBQMJA1wCAwMCBwMCAwcFAxkDAgMHAgMDCQMcAgMDCQMMYQMCAwcFKwUDCQMMIQMM/3ECAwMJ" +
    "AwIDBwUFFwMCAwcCAwMJAxwFDxZXAwwCAwMJHwUDCQMMIQ9wEQMOBgImSf//////bQMCAwcCAwMJAwIaAgMDCQMCAwcCAwMZAwIKBQMJA1wCAw" +
    "MCBwMCAwcCAwMZAwIDBwIDAwkDHAIDAwkDbQMFBwUMAxwFDAMtAwz/cQIDAwkDAgMHBQMZAwIDBwIDAwkDHAIDAwkDDGEDAgMHAgMDCQMcAgMD" +
    "CQMMIQMMcAUDCQMMIQMMMCr/WAMCAwcFAwkfAgMDCQMMIQN8AgMDCQMMIQMMGTliDDAW//////+vAgMDCQMCAwcFBRcDDAIDDxwKChZXAwwCAw" +
    "wfAgMMAwwhAwxwChgGAhoMOAIe/1oDAgMHBQMJAxwCAwMJAwwhAwxwBQMJAwwhAwwWGoEDDDAZ/6gFDAMtAww6IFcDDIV1GEIkAv//////////" +
    "/////////////////4wDAgMHAgMDAgcDAhoCAwMCBwMCAwcCAxwDDAUDCQNcAgMDCQMCAwcCAxwDAgMHAgMDCQMcAgMDCQMMYQMMAgMDDBwFAw" +
    "kDDCED/30CAwMCBwMCAwcCAwMZAwIDBwIDAwkDHAIDAwkDDGEDAgMHAgMDCQMcAgMDCQMMChcDDHACAwMJAwwhAwwwJf9dAwUHAgMDCQMcAgMD" +
    "CQMMJAxwAgMDCQMMIQMMMBZrAwww///////FAgMDCQMCAwcCAwMZAwIDBwIDAwkDHAIDAwkDbQMCAwcCAwMJAxwCAwMJAwwhAwxwBQMJAwwhAw" +
    "wZF/+CAwIDBwIDAwkDHAIDAwkDDCEDDHACAwMJAwwhAwwwgQMMFhr/wQIDAwkDDCEDDAomgQMMMMAZbCP//////14DAgoCAwMJAxwFAwkDDCQM" +
    "cAIDAwkDDCEDDDAZawwwFkv/YAUDCQMMIQMMMIEDDDAKHipulP9uAwxVM2gq/xlf////////////////////////////dAIDAwkDBQcFHAMMAg" +
    "MDCR8FDANtAwUHAgMDCQMcAgMDCQMtAwwZVwUFBwMtAwz/sgMCAwcCAwMJHwIDAwkDDCEDDHACAwMJAwwhAwwwCncDDBkX/8EFDAMtAwxSXwM8" +
    "Jb02Aigg//////9kAwUHAgMDDBwCAwMJAwwhAwxwBQwDLQMMCqcDDDBm/1sCAwMJAwwhAwwwFmsDDDBYCV9GHv+eAwwWGmlXSQn/P///////dQ" +
    "UFCg4IFwMMUgiWJZ0IGAYCWAYCHv9aAwwwSRtcGf85/7oeerIyggIWAgZgIg==",
  /** 256 entries of 4 digits of 4 bits: 4, 12, 20, 28, 36, 44, 52 and 62. */
  IQ3_XXS:
    "AAICDQIECQIPETECjAINAg8ECwIPExyQAgINDwIPAgQaBh6MBgkCE0ujJA0THAKMBisg4y+sBAItHv//////////qAINAg8CDQICEwmwAg8PAt" +
    "8CDQIPD0KOAh4RFSCbBEvQBCIrlP8eHv//////////yAIPAg0CBAsRvwICCwIPDzMECZACDwYJAhUJFawPBFwEwR6wJBoz/44CEy//////////" +
    "/8QPAg8CLRUNjgIeERMCuwINFS0gnyL9FyuOBhwzvyIt0C3//////////6wTHgIcBP8erBcJIAahPr9NE8EeLf+WCwIe///////////qLy+QBi" +
    "Avvx5AkFG9EwRLkC//INQe///////////qIAIevUC2TcwG/w/BTeHQHv//////////6gICCSIg1BrSMw2uFR4twSC/AiL/DQ==",
  /** 512 entries of 4 digits of 4 bits: odd numbers from 1 to 15. */
  IQ3_S:
    "AAEBAwIJAQECAgoBBA4NAgMCCgINAg8DA4kBAQIMAQQLAwQKBA8dBA2OAQQCCQMDCwQLBA4DAgoCHQOQDgQLAg8CAw4MAhUKBIsTBAoDDg4DDh" +
    "+SAhwCBA0OBAIfDZMLAh4hH48CAhwCBA0dBP//////////tAEBAgwBAgICCQIPAwIeAgsRjgECAwoEDQ8DDg8CHgaKEgMCCQQODgMSCxKPAwMJ" +
    "Aw4GCQQNIQ6TAg0CHQIPBAoErQ8DDg8CH88EAx0CuwINAg8UDCEO//////////+YAQICAgkCAgILAgQJAg8CAgsCFQkDAosCDgMECwMMAw4PsA" +
    "MDGgINBwoSBBoDjAIDDBECDQIPDhabBhkDDwMMMQOPDREVCRMdkAIFGjQMpAwVChMN//////////+6DwICAgsPAgINAgMKEg6QAgIPDQIdIBIE" +
    "ihIOEgIcsQ8EDQIECRECBA4ekA4FDA8hDgSdDwITDRISHaMrwAIdAhP//////////9MEDg4EAwsPDyCSBQoCDw4FDg4ErAINBQwSDRcLDpQNAg" +
    "0CDwTLAiITCTGUAhpBsSEssAUbEw7//////////7kOBA4eBAMLFA6NAgINDxFAjhESDQYdrwUJFx0NFA6OAxwSFMwUKwLvwAIe///////////3" +
    "AgIcAi2gIAc9riIOEw0OkBQNH+UeH54DMSylO9EC///////////1BAMZAhQKFA6gDxMfArwDDAYLDyGxMAMergQODTDSIMAvzw==",
};

type CodebookName = "IQ1" | "IQ2_XXS" | "IQ2_XS" | "IQ2_S" | "IQ3_XXS" | "IQ3_S";

/** The entries of a codebook. */
function entriesOf(name: CodebookName): Uint16Array {
  const entries: number[] = [];
  let sum = 0;
  for (const each of atob(CODEBOOKS[name])) {
    const difference = each.charCodeAt(0);
    sum += difference;
    if (difference < 255) entries.push(sum);
  }
  return Uint16Array.from(entries);
}

/** What the digits of an entry stand for. */
const TERNARY = [-1, 0, 1] as const;
const THREE = [8, 25, 43] as const;
const EIGHT = [4, 12, 20, 28, 36, 44, 52, 62] as const;
const ODD = [1, 3, 5, 7, 9, 11, 13, 15] as const;

/**
 * The elements of a codebook's entries one after the other, made when they are first needed. Calls are marked as pure, so that bundles
 * that read no GGUF leave codebooks out.
 */
function elementsOf(name: CodebookName, digits: 4 | 8, values: readonly number[]): () => Int8Array {
  let elements: Int8Array | undefined;
  return () => {
    if (elements) return elements;
    const bits = 16 / digits;
    const entries = entriesOf(name);
    elements = new Int8Array(digits * entries.length);
    for (const [i, entry] of entries.entries())
      for (let j = 0; j < digits; j++)
        elements[digits * i + j] = values[(entry >> (bits * j)) & ((1 << bits) - 1)] as number;
    return elements;
  };
}

/** The elements of each codebook, entry after entry. */
export const ELEMENTS: Readonly<Record<CodebookName, () => Int8Array>> = {
  IQ1: /* @__PURE__ */ elementsOf("IQ1", 8, TERNARY),
  IQ2_XXS: /* @__PURE__ */ elementsOf("IQ2_XXS", 8, THREE),
  IQ2_XS: /* @__PURE__ */ elementsOf("IQ2_XS", 8, THREE),
  IQ2_S: /* @__PURE__ */ elementsOf("IQ2_S", 8, THREE),
  IQ3_XXS: /* @__PURE__ */ elementsOf("IQ3_XXS", 4, EIGHT),
  IQ3_S: /* @__PURE__ */ elementsOf("IQ3_S", 4, ODD),
};
