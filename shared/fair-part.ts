/**
 * The most that one of several holders may have of something that all share: as much as is left for others, which is half
 * where it comes alone (dynamic thresholds, Choudhury and Hahne 1998), or an equal part where that is more.
 * @param holders that have some of it
 */
export const fairPart = (total: number, taken: number, holders: number): number =>
  Math.max(total - taken, total / (holders + 1));
